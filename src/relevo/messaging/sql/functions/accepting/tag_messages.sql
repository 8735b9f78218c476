-- Tags of copies at entities that are fair between tenants, which are their ranks there; null for other copies. The tags of a
-- tenant lie a step apart, on a grid of its own; see `relevo.messaging.core.fairness`.
create or replace function relevo.tag_messages(
  p_of integer[], p_places integer[], p_sub_queues smallint[], p_classes smallint[], p_keys text[], p_numbers bigint[])
returns bigint[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  tags bigint[];
begin
  perform from relevo.message_tally t
  where t.entity_id in (select e.id from relevo.message_entity e where e.id = any (p_places) and e.fair)
  order by t.entity_id for share;
  with given as materialized (
    select c.n, c.place, c.class, coalesce(c.key, '') as key, c.number,
      row_number() over (partition by c.place, c.class, coalesce(c.key, '') order by c.n) as nth
    from unnest(p_of, p_places, p_sub_queues, p_classes, p_keys, p_numbers) with ordinality
      as c (of, place, sub_queue, class, key, number, n)
    join relevo.message_entity e on e.id = c.place and e.fair
    where c.of is not null and c.sub_queue = 0
  ), firsts as (
    select g.place, g.class, g.key, min(g.number) as number, count(*) as amount,
      coalesce((select t.tags[array_position(t.numbers, g.class)] from relevo.message_tally t where t.entity_id = g.place), 0) as reached
    from given g group by g.place, g.class, g.key
  ), kept as (
    insert into relevo.message_fairness as f (entity_id, class, key, last_tag, used_at)
    select g.place, g.class, g.key, g.reached + 1000000 - (((g.reached - g.number) % 1000000) + 1000000) % 1000000 + (g.amount - 1) * 1000000, relevo.now()
    from firsts g order by g.place, g.class, g.key
    on conflict (entity_id, class, key) do update set used_at = excluded.used_at, last_tag = (
      select greatest(g.reached, f.last_tag) + 1000000
        - (((greatest(g.reached, f.last_tag) - f.last_tag) % 1000000) + 1000000) % 1000000 + (g.amount - 1) * 1000000
      from firsts g where g.place = f.entity_id and g.class = f.class and g.key = f.key)
    returning f.entity_id, f.class, f.key, f.last_tag
  )
  select array_agg(k.last_tag - (f.amount - g.nth) * 1000000 order by c.n) into tags
  from unnest(p_places) with ordinality as c (place, n)
  left join given g on g.n = c.n
  left join firsts f on f.place = g.place and f.class = g.class and f.key = g.key
  left join kept k on k.entity_id = g.place and k.class = g.class and k.key = g.key;
  return tags;
end $$;
