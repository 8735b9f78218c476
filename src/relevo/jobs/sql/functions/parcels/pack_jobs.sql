-- Turns claimed rows into a parcel of their host, in the order of `places`; returns the rows as they were before.
create or replace function relevo.pack_jobs(
  p_host uuid, p_name text, p_claim bigint, p_lanes text[], p_keeps boolean, places tid[])
returns relevo.job[] language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare taken relevo.job[];
begin
  with gone as (
    delete from relevo.job j using unnest(places) as p (place) where j.ctid = p.place returning j as job  -- in this order
  )
  select array_agg(g.job) into taken from gone g;
  insert into relevo.job_parcel (host, claim, host_name, taken_at, size, keeps, lanes, ids, jobs)
  select p_host, p_claim, p_name, relevo.now(), cardinality(taken), p_keeps, p_lanes, array(select j.id from unnest(taken) as j), taken;
  return taken;
end $$;
