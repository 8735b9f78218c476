-- Deletes messages of an entity or sub-queue that nobody holds, the oldest first, up to a limit: those that arrived before a time, or
-- all. Returns how many.
create or replace function relevo.purge_messages(
  p_entity integer, p_sub_queue smallint, p_before timestamptz default null, p_limit integer default 1000)
returns integer language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  old bigint[];
  sessions bigint[];
begin
  select array_agg(m.sequence), array_agg(distinct m.session) filter (where m.session is not null) into old, sessions from (
    select m.sequence, m.session from relevo.message m
    where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.state not in (1, 3) and (p_before is null or m.enqueued_at < p_before)
    order by m.sequence limit p_limit) m;
  if old is null then return 0; end if;
  if sessions is not null then perform relevo.lock_sessions(sessions); end if;
  old := array(
    select m.sequence from relevo.message m where m.sequence = any (old) and m.sub_queue = p_sub_queue and m.state not in (1, 3)
    order by m.sequence for update skip locked);
  perform relevo.remove_messages(old);
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  return cardinality(old);
end $$;
