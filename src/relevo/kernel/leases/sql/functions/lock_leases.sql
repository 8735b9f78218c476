-- Whoever changes the epoch of leases first excludes the transactions that are fenced by them.
-- Ids are locked in rising order on every path, so that there are no deadlocks: the subquery sorts,
-- and its rows are locked one by one as they come.
create or replace function relevo.lock_leases(ids integer[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock(1380273155, s.id) from (select unnest(ids) as id order by 1) s;
end $$;
