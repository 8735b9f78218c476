-- Locks gates, in one order on every path, to avoid deadlocks; before any job row.
create or replace function relevo.lock_job_gates(keys text[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare number integer;
begin
  perform relevo.stay_awake();
  for number in select distinct hashtext(k) from unnest(keys) as k order by 1 loop
    perform pg_advisory_xact_lock(1380273160, number);
  end loop;
end $$;
