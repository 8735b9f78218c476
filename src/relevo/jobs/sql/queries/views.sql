-- name: count_jobs
-- How many jobs there are by status and type: all live ones, and those completed since an instant. Large tables are
-- sampled; of failed and canceled jobs the latest 10,000 are counted.
with ends as (
  (select status, operation_type, 1::float8 as jobs, false as sampled from relevo.job_history
   where status <> 30 and completed_at >= relevo.now() - $1::interval order by completed_at desc limit 10000)
  union all
  select h.status, h.operation_type, 100 / s.percent, s.percent < 100
  from (select relevo.sample_percent(pg_typeof(null::relevo.job_history), 1024) as percent offset 0) s
  cross join relevo.job_history h tablesample system (relevo.sample_percent(pg_typeof(null::relevo.job_history), 1024)) repeatable (0)
  where h.status = 30 and h.completed_at >= (select relevo.now() - $1::interval))
select status, operation_type, round(sum(jobs))::bigint as jobs,
  bool_or(sampled) or (status > 30 and (select count(*) from ends e where e.status > 30) = 10000) as estimated
from (select status, operation_type, jobs, sampled from relevo.counted_job union all select * from ends) j
group by status, operation_type having sum(jobs) > 0 order by status, jobs desc;

-- name: suspended_jobs
-- Why suspended jobs wait, by type and handler.
select operation_type, handler, count(*) as jobs, count(*) filter (where waiting_event) as for_event,
  count(*) filter (where not waiting_event and postpone_until is not null) as for_time,
  count(*) filter (where not waiting_event and postpone_until is null) as for_somebody,
  min(modified_at) as since, min(postpone_until) filter (where not waiting_event) as next_at
from relevo.job where status = 10 and not deleted
group by operation_type, handler order by jobs desc limit $1;

-- name: waiting_jobs
-- How long ready jobs have waited, by lane; `blocked` ones wait behind others of their chain or owner. Many are sampled.
select lane, width_bucket(extract(epoch from (select relevo.now()) - created_at)::float8, $1::float8[]) as bucket,
  round(sum(jobs))::bigint as jobs, coalesce(round(sum(jobs) filter (where blocked)), 0)::bigint as blocked, min(created_at) as oldest
from relevo.counted_job where status = 0
group by lane, bucket having sum(jobs) > 0 order by lane, bucket;

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
-- Lanes with their configuration and contents; many jobs are sampled.
select l.name, l.events, l.priority, l.owner_cap, l.shared_tokens, coalesce(j.ready, 0) as ready, coalesce(j.suspended, 0) as suspended,
  coalesce(j.running, 0) as running, j.oldest, extract(epoch from relevo.now() - j.oldest)::float8 as oldest_seconds,
  array(select h.name from relevo.job_handler h where h.lane = l.name order by h.name) as handlers
from relevo.job_lane l left join (
  select lane, round(sum(jobs) filter (where status = 0))::bigint as ready, round(sum(jobs) filter (where status = 10))::bigint as suspended,
    round(sum(jobs) filter (where status between 20 and 22))::bigint as running, min(created_at) filter (where status = 0) as oldest
  from relevo.counted_job group by lane
) j on j.lane = l.name
order by l.name;

-- name: running_jobs
-- Running jobs, with host and progress; the longest first.
select id, name, lane, handler, status, host_name, attempt, progress::numeric::float8 as progress, modified_at, started_at
from relevo.live_job
where host is not null and ($1::uuid is null or host = $1) order by started_at, sequence limit $2;
