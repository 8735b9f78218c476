-- The next message of each pair of sender and receiver in some slots, if its time has come and its receiver is not busy. It
-- steps from pair to pair, not from message to message, and takes a pair of each slot in turn.
create or replace function relevo.due_actor_messages(p_groups text[], p_slots integer[], p_busy text[], p_most integer)
returns table (number bigint, receiver text, sender text, method text, body bytea, digest text, headers text, attempt integer,
               attempts integer, on_dead text, since timestamptz, crashes integer, begun_epoch bigint) language plpgsql stable
set search_path = pg_catalog, pg_temp set jit = off
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  t timestamptz := relevo.now();
begin
  return query
  with recursive pair as (
    select s.placement_group, s.slot, m.receiver, m.sender, m.number
    from unnest(p_groups, p_slots) as s (placement_group, slot) cross join lateral (
      select m.receiver, m.sender, m.number from relevo.actor_message m
      where m.placement_group = s.placement_group and m.slot = s.slot and (m.dead_at is null or m.on_dead = 'block')
      order by m.receiver, m.sender, m.number limit 1) m
    union all
    select p.placement_group, p.slot, m.receiver, m.sender, m.number
    from pair p cross join lateral (
      select m.receiver, m.sender, m.number from relevo.actor_message m
      where m.placement_group = p.placement_group and m.slot = p.slot and (m.dead_at is null or m.on_dead = 'block')
        and (m.receiver, m.sender) > (p.receiver, p.sender)
      order by m.receiver, m.sender, m.number limit 1) m
  )
  select m.number, m.receiver, m.sender, m.method, m.body, m.digest, m.headers, m.attempt, m.attempts, m.on_dead,
         coalesce(m.due, m.sent_at), m.crashes, m.begun_epoch
  from pair p cross join lateral (
    select * from relevo.actor_message m
    where m.number = p.number and m.dead_at is null and (m.due is null or m.due <= t)) m
  where p.receiver <> all (p_busy)
  limit p_most;
end $$;
