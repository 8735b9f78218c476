-- name: count_jobs
-- How many jobs there are by status and type: all live ones, and those completed since an instant.
select status, operation_type, count(*) as jobs from (
  select status, operation_type from relevo.live_job
  union all
  select status, operation_type from relevo.job_history where completed_at >= relevo.now() - $1::interval
) j group by status, operation_type order by status, jobs desc;

-- name: suspended_jobs
-- Why suspended jobs wait, by type and handler.
select operation_type, handler, count(*) as jobs, count(*) filter (where waiting_event) as for_event,
  count(*) filter (where not waiting_event and postpone_until is not null) as for_time,
  count(*) filter (where not waiting_event and postpone_until is null) as for_somebody,
  min(modified_at) as since, min(postpone_until) filter (where not waiting_event) as next_at
from relevo.job where status = 10 and not deleted
group by operation_type, handler order by jobs desc limit $1;

-- name: waiting_jobs
-- How long ready jobs have waited, by lane; `blocked` ones wait behind others of their chain or owner.
select lane, width_bucket(extract(epoch from relevo.now() - created_at)::float8, $1::float8[]) as bucket, count(*) as jobs,
  count(*) filter (where chained or capped) as blocked, min(created_at) as oldest
from relevo.live_job where status = 0
group by lane, bucket order by lane, bucket;

-- name: failed_jobs
-- Extensions that failed since an instant, with their error codes.
select coalesce(extension, handler) as extension, error_code, count(*) as jobs, max(completed_at) as last_at,
  (array_agg(id order by completed_at desc))[1] as last_id
from relevo.job_history where status = 31 and completed_at >= relevo.now() - $1::interval
group by 1, error_code order by jobs desc limit $2;

-- name: job_volumes
-- How much jobs store, by name: live ones, and those completed since an instant.
select name, count(*) as jobs, coalesce(sum(pg_column_size(data)), 0)::bigint as data_bytes,
  coalesce(sum(pg_column_size(saved)), 0)::bigint as state_bytes, coalesce(sum(pg_column_size(result)), 0)::bigint as result_bytes
from (
  select name, data, saved, result from relevo.live_job
  union all
  select name, data, saved, result from relevo.job_history where completed_at >= relevo.now() - $1::interval
) j group by name order by sum(coalesce(pg_column_size(data), 0) + coalesce(pg_column_size(saved), 0)
  + coalesce(pg_column_size(result), 0)) desc limit $2;

-- name: blocked_chains
-- Chains in which jobs wait, the longest first, and the job that each waits for.
select h.chain, h.token, case when h.chain like 'u%' then h.owner end as owner, w.jobs - h.chained::integer as jobs, w.oldest, h.id as head_id, h.name as head_name,
  h.status as head_status, h.postpone_until as head_postponed_until, h.started_at as head_started_at, h.host_name as head_host
from (
  select chain, count(*) as jobs, min(created_at) as oldest from relevo.job where chained and chain is not null and not deleted
  group by chain order by jobs desc limit $1
) w cross join lateral (
  select * from relevo.job h where h.id = coalesce(
    (select o.id from relevo.job o where o.chain = w.chain and not o.chained),
    (select o.id from relevo.job o where o.chain = w.chain order by o.sequence limit 1))
) h
where w.jobs > h.chained::integer
order by w.jobs desc, h.chain;

-- name: lane_standings
-- Lanes with their configuration and contents.
select l.name, l.events, l.priority, l.owner_cap, l.shared_tokens, coalesce(j.ready, 0) as ready, coalesce(j.suspended, 0) as suspended,
  coalesce(j.running, 0) as running, j.oldest, extract(epoch from relevo.now() - j.oldest)::float8 as oldest_seconds,
  array(select h.name from relevo.job_handler h where h.lane = l.name order by h.name) as handlers
from relevo.job_lane l left join (
  select lane, count(*) filter (where status = 0) as ready, count(*) filter (where status = 10) as suspended,
    count(*) filter (where status between 20 and 22) as running, min(created_at) filter (where status = 0) as oldest
  from relevo.live_job group by lane
) j on j.lane = l.name
order by l.name;

-- name: running_jobs
-- Running jobs, with host and progress; the longest first.
select id, name, lane, handler, status, host_name, attempt, progress::numeric::float8 as progress, modified_at, started_at
from relevo.live_job
where host is not null and ($1::uuid is null or host = $1) order by started_at, sequence limit $2;
