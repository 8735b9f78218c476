-- The sessions of copies that belong to one, and which of these stand behind others of their session. The locks that it takes
-- are held to the end of the transaction: so the numbers of a session, drawn after this, become visible in their order.
create or replace function relevo.join_sessions(
  p_of integer[], p_places integer[], p_sub_queues smallint[], p_sessions text[], p_dues timestamptz[],
  out sessions bigint[], out behind boolean[]) language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform pg_advisory_xact_lock(1380273170, g.lock) from (
    select distinct hashtext(c.place || ' ' || c.key) as lock
    from unnest(p_of, p_places, p_sub_queues, p_sessions) as c (of, place, sub_queue, key)
    join relevo.message_entity e on e.id = c.place and e.has_sessions
    where c.of is not null and c.sub_queue = 0 and c.key is not null order by 1) as g;
  insert into relevo.message_session (entity_id, key)
  select distinct c.place, c.key from unnest(p_of, p_places, p_sub_queues, p_sessions) as c (of, place, sub_queue, key)
  join relevo.message_entity e on e.id = c.place and e.has_sessions
  where c.of is not null and c.sub_queue = 0 and c.key is not null
  on conflict (entity_id, key) do nothing;
  select array_agg(g.id order by g.n), array_agg(g.is_behind order by g.n) into sessions, behind
  from (
    select c.n, s.id,
      s.held or s.id is not null and row_number() over (partition by s.id, p_dues[c.of] > relevo.now() order by c.n) > 1
      or exists (select from relevo.message m where m.session = s.id and m.state in (0, 1, 5, 6)) as is_behind
    from unnest(p_of, p_places, p_sub_queues, p_sessions) with ordinality as c (of, place, sub_queue, key, n)
    left join relevo.message_entity e on e.id = c.place and e.has_sessions and c.sub_queue = 0 and c.of is not null
    left join relevo.message_session s on s.entity_id = e.id and s.key = c.key
  ) g;
end $$;
