-- name: tend
-- Whether there is due work for the leader, and the seconds until any job is due (`next`).
with recursive hosts as (
  (select host from relevo.job where host is not null order by host limit 1)
  union all
  select (select j.host from relevo.job j where j.host > h.host order by j.host limit 1) from hosts h where h.host is not null
)
select
  exists (select from (select host from hosts union all select host from relevo.job_parcel) h
    where h.host is not null and not exists (
      select from relevo.host x where x.incarnation = h.host and x.ended_at is null)) as lost,
  exists (select from relevo.job j where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event
    and j.series is not null and j.attempt = 0) as series,
  exists (select from relevo.job_wait w where not w.woken) as waits,
  exists (select from relevo.job_brake) or exists (select from relevo.job_failure)
    or exists (select from relevo.job j where j.status = 10 and j.waiting_event and j.error_code = -2147088105) as brakes,
  exists (select from relevo.job_batch_delta) or exists (select from relevo.job_batch where canceling) as batches,
  (select case when j.seconds > 0 then j.seconds end from (
    select extract(epoch from j.postpone_until - relevo.now())::float8 as seconds from relevo.job j
    where j.status = 10 and j.postpone_until is not null and not j.waiting_event order by j.postpone_until limit 1) j) as next;

-- name: recover
-- Takes jobs from hosts that have ended, $1 at a time.
select relevo.recover_jobs($1, $2, $3);

-- name: open_gates
-- Opens noted gates, in case no host claims.
select relevo.open_noted_job_gates();

-- name: fail_unserved
-- Fails ready jobs whose handler no host has had for $1.
select relevo.fail_unserved_jobs($1::interval, $2, $3, $4);

-- name: forget_completed
-- Reads completed jobs from a position on, in order of creation, and removes those past the retention of their status;
-- returns how many, and the next position.
with kept as materialized (
  select k.status, relevo.now() - k.age as since from unnest($1::smallint[], $2::interval[]) as k (status, age)
), looked as materialized (
  select h.ctid, h.created_at, h.sequence, h.status, h.completed_at from relevo.job_history h
  where (h.created_at, h.sequence) > ($3, $4) and h.created_at < (select max(since) from kept)
  order by h.created_at, h.sequence limit $5
), gone as (
  delete from relevo.job_history where ctid = any (array(
    select l.ctid from looked l join kept k on k.status = l.status and l.completed_at < k.since))
  returning 1
)
select (select count(*) from gone) as removed, created_at, sequence from looked order by created_at desc, sequence desc limit 1;

-- name: record_deletion
-- Stores a record of a platform job.
insert into relevo.job_history (id, rank, created_at, modified_at, started_at, completed_at, run_seconds, attempt,
  operation_type, status, progress, system, lane, handler, name, extension, correlation, correlation_at, result)
values ($1, (extract(epoch from $3::timestamptz) * 1000000)::bigint, $3, relevo.now(), $3, relevo.now(),
  extract(epoch from relevo.now() - $3), 1, $2, 30, 1, true, 'maintenance', 'relevo.retention', 'Deletion Service',
  'relevo.retention', $1, $3, $4);

-- name: count_failures
-- Counts failed runs per extension and minute.
insert into relevo.job_failure (extension, minute, handler, failures)
select extension, date_trunc('minute', relevo.now()), handler, count(*) from relevo.jobs_by_id($1::uuid[])
where extension is not null
group by 1, 2, 3 order by 1, 3
on conflict (extension, minute, handler) do update set failures = relevo.job_failure.failures + excluded.failures;

-- name: watch_brakes
-- Puts brakes on extensions, probes, renews and lifts them; see the function.
select extension, change from relevo.watch_brakes($1, $2::interval, $3::interval);

-- name: brake_jobs
-- Moves some ready jobs of braked extensions aside.
select relevo.brake_jobs($1);

-- name: release_braked_jobs
-- Releases jobs of brakes that are off.
select relevo.release_braked_jobs($1);

-- name: brakes
-- Extensions that are braked, since when and until when.
select extension, since, until, probe from relevo.job_brake order by extension;

-- name: jobs_of_extension
-- Some jobs of an extension that have not started, with their gates.
select id, chain, lane, owner from relevo.job where extension = $1 and status in (0, 10) and not deleted order by id limit $2;

-- name: deactivate_jobs
-- Cancels jobs whose extension was deactivated.
select id from relevo.move_jobs($1::uuid[], array_fill('deactivate'::text, array[cardinality($1::uuid[])]), keys => $2::text[]);
