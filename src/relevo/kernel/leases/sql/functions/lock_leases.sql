-- Whoever changes the epoch of leases first excludes the transactions that are fenced by them.
-- Ids are locked in rising order on every path, so that there are no deadlocks.
create or replace function relevo.lock_leases(ids integer[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare lease_id integer;
begin
  perform relevo.stay_awake();
  for lease_id in select unnest(ids) order by 1 loop
    perform pg_advisory_xact_lock(1380273155, lease_id);
  end loop;
end $$;
