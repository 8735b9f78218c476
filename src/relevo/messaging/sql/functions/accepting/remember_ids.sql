-- Remembers the ids of messages for entities that detect duplicates; returns which messages, counted from 1, are duplicates.
-- Of equal ids in one call the first wins. A sender of the same id in another transaction is waited for.
create or replace function relevo.remember_ids(p_origins integer[], p_ids text[]) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  firsts integer[];
  accepted integer[];
begin
  select array_agg(f.n order by f.id, f.entity_id) into firsts from (
    select distinct on (o.entity_id, o.id) o.entity_id, o.id, o.n::integer as n
    from unnest(p_origins, p_ids) with ordinality as o (entity_id, id, n)
    join relevo.message_entity e on e.id = o.entity_id and e.duplicate_window is not null
    order by o.entity_id, o.id, o.n) f;
  with kept as (
    insert into relevo.message_seen as s (entity_id, message_id, until)
    select p_origins[f], p_ids[f], at + make_interval(secs => e.duplicate_window)
    from unnest(firsts) with ordinality as g (f, n) join relevo.message_entity e on e.id = p_origins[f] order by g.n
    on conflict (entity_id, message_id) do update set until = excluded.until where s.until <= at
    returning s.entity_id, s.message_id
  )
  select array_agg(f) into accepted from unnest(firsts) as f
  join kept k on k.entity_id = p_origins[f] and k.message_id = p_ids[f];
  return array(
    select o.n::integer from unnest(p_origins) with ordinality as o (entity_id, n)
    join relevo.message_entity e on e.id = o.entity_id and e.duplicate_window is not null
    where not (o.n = any (coalesce(accepted, '{}'))));
end $$;
