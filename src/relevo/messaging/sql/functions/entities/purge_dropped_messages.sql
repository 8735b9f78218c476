-- Removes what entities that do not exist any more have left: up to `p_limit` messages, arrivals, sessions and remembered ids each.
-- Returns how many.
create or replace function relevo.purge_dropped_messages(p_limit integer default 1000) returns integer language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  dropped integer[] := relevo.dropped_entities();
  removed integer;
  total integer := 0;
begin
  if cardinality(dropped) = 0 then return 0; end if;
  delete from relevo.message m where m.sequence in (
    select o.sequence from relevo.message o where o.entity_id = any (dropped) limit p_limit for update skip locked);
  get diagnostics removed = row_count; total := total + removed;
  delete from relevo.message_arrival a where a.id in (
    select o.id from relevo.message_arrival o where o.entity_id = any (dropped) limit p_limit for update skip locked);
  get diagnostics removed = row_count; total := total + removed;
  delete from relevo.message_session s where s.id in (
    select o.id from relevo.message_session o where o.entity_id = any (dropped) limit p_limit for update skip locked);
  get diagnostics removed = row_count; total := total + removed;
  delete from relevo.message_seen i where (i.entity_id, i.message_id) in (
    select o.entity_id, o.message_id from relevo.message_seen o where o.entity_id = any (dropped) limit p_limit for update skip locked);
  get diagnostics removed = row_count; total := total + removed;
  return total;
end $$;
