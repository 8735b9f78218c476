-- Notes under the fence of its slot that the state of an actor cannot be used; it stays as it is. Returns whether the fence holds.
create or replace function relevo.quarantine_actor(p_lease integer, p_epoch bigint, p_actor text, p_error text)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from relevo.stale_fences(array[p_lease], array[p_epoch])) then
    return false;
  end if;
  update relevo.actor set quarantined_at = relevo.now(), quarantine_error = p_error where id = p_actor;
  return true;
end $$;
