-- Writes start events of claimed jobs, in lanes with events = 'all' and of platform jobs.
create or replace function relevo.announce_claims(p_host uuid, p_claim bigint) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('synchronous_commit', 'on', true);
  perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('started'::text), array_agg(0::smallint),
    array_agg(20::smallint), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
    array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
  from relevo.job j join relevo.job_lane l on l.name = j.lane
  where j.host = p_host and j.claim = p_claim and (l.events = 'all' or j.system);
end $$;
