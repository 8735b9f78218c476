-- Deletes scheduled messages of an entity by their numbers; returns the numbers of those that were still scheduled.
create or replace function relevo.cancel_scheduled(p_entity integer, p_sequences bigint[]) returns bigint[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  scheduled bigint[] := array(
    select m.sequence from relevo.message m where m.sequence = any (p_sequences) and m.entity_id = p_entity and m.state = 4
    order by m.sequence for update);
begin
  if cardinality(scheduled) > 0 then perform relevo.remove_messages(scheduled); end if;
  return scheduled;
end $$;
