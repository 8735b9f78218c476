-- Locks what claims of an entity leave for the next one, and returns it.
create or replace function relevo.lock_tally(p_entity integer) returns relevo.message_tally language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  tally relevo.message_tally;
begin
  select * into tally from relevo.message_tally t where t.entity_id = p_entity for update;
  if not found then
    insert into relevo.message_tally (entity_id) values (p_entity) on conflict do nothing;
    select * into tally from relevo.message_tally t where t.entity_id = p_entity for update;
  end if;
  return tally;
end $$;
