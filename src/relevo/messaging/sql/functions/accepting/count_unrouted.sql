-- Counts messages to topics that no subscription wanted (all but those of `p_of`), and filters that failed (`p_failures`:
-- subscriptions, once per failure).
create or replace function relevo.count_unrouted(p_origins integer[], p_of integer[], p_failures integer[]) returns void
language sql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
  insert into relevo.message_delta (entity_id, sub_queue, class, unrouted)
  select o.id, 0, 0, count(*) from unnest(p_origins) with ordinality as o (id, n)
  join relevo.message_entity e on e.id = o.id and e.kind = 'topic'
  where not (o.n = any (p_of)) group by o.id;
  insert into relevo.message_delta (entity_id, sub_queue, class, filter_errors)
  select f, 0, 0, count(*) from unnest(p_failures) as f group by f;
$$;
