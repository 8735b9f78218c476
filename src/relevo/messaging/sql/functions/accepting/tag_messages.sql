-- Tags of copies at entities that are fair between tenants, which are their ranks there; null for other copies. The tags of a
-- tenant lie a step apart, on a grid of its own; see `relevo.messaging.core.fairness`.
create or replace function relevo.tag_messages(
  p_of integer[], p_places integer[], p_sub_queues smallint[], p_classes smallint[], p_keys text[], p_numbers bigint[])
returns bigint[] language plpgsql volatile  -- by hash joins: others would look at every tenant for each message
set enable_nestloop = off set enable_mergejoin = off set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  fair integer[] := array(select e.id from relevo.message_entity e where e.id = any (p_places) and e.fair);
  tags bigint[];
begin
  perform from relevo.message_tally t where t.entity_id = any (fair) order by t.entity_id for share;
  with given as materialized (
    select c.n, c.place, c.class, coalesce(c.key, '') as key, c.number,
      row_number() over (partition by c.place, c.class, coalesce(c.key, '') order by c.n) as nth
    from unnest(p_of, p_places, p_sub_queues, p_classes, p_keys, p_numbers) with ordinality
      as c (of, place, sub_queue, class, key, number, n)
    where c.of is not null and c.sub_queue = 0 and c.place = any (fair)
  ), reached as materialized (
    select t.entity_id as place, r.class, r.tag from relevo.message_tally t cross join unnest(t.numbers, t.tags) as r (class, tag)
    where t.entity_id = any (fair)
  ), firsts as materialized (
    select g.*, coalesce(r.tag, 0) as reached
    from (select g.place, g.class, g.key, min(g.number) as number, count(*) as amount from given g group by g.place, g.class, g.key) g
    left join reached r on r.place = g.place and r.class = g.class
  ), kept as (
    insert into relevo.message_fairness as f (entity_id, class, key, last_tag, used_at)
    select g.place, g.class, g.key, g.reached + 1000000 - (((g.reached - g.number) % 1000000) + 1000000) % 1000000 + (g.amount - 1) * 1000000, at
    from firsts g order by g.place, g.class, g.key
    on conflict (entity_id, class, key) do update set used_at = excluded.used_at, last_tag = (
      select greatest(r.tag, f.last_tag) + 1000000 - (((greatest(r.tag, f.last_tag) - f.last_tag) % 1000000) + 1000000) % 1000000
        + (excluded.last_tag - r.tag - 1) / 1000000 * 1000000  -- its other messages
      from (select coalesce((select r.tag from reached r where r.place = excluded.entity_id and r.class = excluded.class), 0) as tag) r)
    returning f.entity_id, f.class, f.key, f.last_tag, f.xmax = 0 as is_new
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, fairness_keys)
    select k.entity_id, 0, k.class, count(*) from kept k where k.is_new group by k.entity_id, k.class
  )
  select array_agg(t.tag order by c.n) into tags
  from unnest(p_places) with ordinality as c (place, n)
  left join (
    select g.n, k.last_tag - (f.amount - g.nth) * 1000000 as tag from given g
    join firsts f on f.place = g.place and f.class = g.class and f.key = g.key
    join kept k on k.entity_id = g.place and k.class = g.class and k.key = g.key) t on t.n = c.n;
  return tags;
end $$;
