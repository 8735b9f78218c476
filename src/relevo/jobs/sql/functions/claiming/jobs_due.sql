-- In how many seconds a host has anything to do for jobs, 0 for at once: a job of its handlers is ready, a gate can be opened,
-- something is asked of its jobs, or, if it is `vacant` and knows of none, it holds one. Null if nothing is known.
create or replace function relevo.jobs_due(p_host uuid, handlers text[], vacant boolean) returns float8 language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if exists (
      select from unnest(handlers) as h (handler) cross join lateral (
        (select from relevo.job j where j.handler = h.handler and j.status = 0 and not j.chained and not j.capped and not j.alone limit 1)
        union all
        (select from relevo.job_parcel q where q.host is null and q.handler = h.handler limit 1)) as ready)
    or exists (select from relevo.job_gate)
    or exists (select from relevo.job j where j.host = p_host and j.host is not null and (j.status <> 20 or j.deleted))
    or cardinality(relevo.lone_jobs(handlers)) > 0
    or vacant and (exists (select from relevo.job j where j.host = p_host)
                   or exists (select from relevo.job_parcel q where q.host = p_host)) then
    return 0;
  end if;
  return (
    select extract(epoch from j.postpone_until - relevo.now()) from relevo.job j
    where j.status = 10 and j.postpone_until is not null and not j.waiting_event order by j.postpone_until limit 1);
end $$;
