-- The entities that do not exist any more and have left messages, arrivals, sessions or remembered ids. Reads one row of each
-- index per entity that has any.
create or replace function relevo.dropped_entities() returns integer[] language sql stable
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  with recursive places (id) as (
    select least(
      (select m.entity_id from relevo.message m order by m.entity_id limit 1),
      (select a.entity_id from relevo.message_arrival a order by a.entity_id limit 1),
      (select s.entity_id from relevo.message_session s order by s.entity_id limit 1),
      (select i.entity_id from relevo.message_seen i order by i.entity_id limit 1))
    union all
    select least(
      (select m.entity_id from relevo.message m where m.entity_id > p.id order by m.entity_id limit 1),
      (select a.entity_id from relevo.message_arrival a where a.entity_id > p.id order by a.entity_id limit 1),
      (select s.entity_id from relevo.message_session s where s.entity_id > p.id order by s.entity_id limit 1),
      (select i.entity_id from relevo.message_seen i where i.entity_id > p.id order by i.entity_id limit 1))
    from places p where p.id is not null
  )
  select array(
    select p.id from places p
    where p.id is not null and not exists (select from relevo.message_entity e where e.id = p.id));
$$;
