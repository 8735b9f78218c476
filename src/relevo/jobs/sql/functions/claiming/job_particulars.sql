-- Rare fields of a job as JSON; keys are the fields of `relevo.jobs.running.claims.Particulars`.
create or replace function relevo.job_particulars(j relevo.job) returns text language sql stable
return jsonb_strip_nulls(jsonb_build_object(
  'owner', j.owner, 'chain', j.chain, 'series', j.series, 'nominal', j.nominal, 'saved', j.saved, 'token', j.token,
  'retries', j.retries, 'crashes', j.crashes,
  'deferred', case when j.details ? 'deferred_since' then extract(epoch from relevo.now() - (j.details ->> 'deferred_since')::timestamptz) end,
  'depth', j.depth, 'root', j.correlation, 'root_at', j.correlation_at,
  'regarding_type', j.regarding_type, 'regarding_id', j.regarding_id,
  'due', extract(epoch from j.postpone_until), 'details', j.details::text, 'alone', nullif(j.alone, false), 'batch', j.batch))::text;
