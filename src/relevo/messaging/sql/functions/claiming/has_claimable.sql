-- Whether a claim would find a message in an entity or sub-queue, with the slots that are free; or, for a host, a session that it holds
-- and of which it handles no message: the claim takes the next one, or gives the session back.
create or replace function relevo.has_claimable(p_entity integer, p_sub_queue smallint, p_limits jsonb, p_host uuid) returns boolean
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  keys text[] := relevo.full_keys(p_limits);
  classes smallint[] := case when p_limits is not null then (relevo.allowed_classes(p_entity, p_limits)).classes end;
begin
  return exists (
    select from relevo.message_entity e join relevo.message_class c on c.entity_id = e.id cross join lateral (
      select from relevo.message m
      where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.class = c.number and m.state = 0
        and (m.expires_at is null or m.expires_at > at)
        and (keys is null or not coalesce(m.fairness_key, '') = any (keys)) order by m.rank, m.sequence limit 1) m
    where e.id = p_entity and e.status in ('active', 'send_disabled')
      and (p_limits is null or c.number = any (classes)))
  or p_host is not null and exists (
    select from relevo.message_session s
    join relevo.message_entity e on e.id = s.entity_id and e.status in ('active', 'send_disabled')
    where s.host = p_host and s.entity_id = p_entity and s.held
      and not exists (select from relevo.message m where m.session = s.id and m.state in (1, 3)));
end $$;
