-- name: gates_of
-- The gates of jobs; read before any row is locked.
select j.id, j.chain, case when l.owner_cap is not null then relevo.job_owner_key(j.lane, j.owner) end as owner_key
from relevo.job j join relevo.job_lane l on l.name = j.lane where j.id = any ($1::uuid[]);

-- name: lock_jobs
-- Locks live jobs by id.
select id, status, version, system, deleted, owner, host, series, attempt, pattern, operation_type, postpone_until
from relevo.job where id = any ($1::uuid[]) order by id for update;

-- name: lock_free_jobs
-- The same without rows that another transaction holds: a statement that never waits cannot deadlock.
select id, status, version, system, deleted, owner, host, series, attempt, pattern, operation_type, postpone_until
from relevo.job where id = any ($1::uuid[]) order by id for update skip locked;

-- name: completed_jobs
-- Completed jobs by id.
select id, status, version, system, owner, series, attempt, operation_type from relevo.job_history where id = any ($1::uuid[]);

-- name: command
-- Carries out commands of clients.
select * from relevo.move_jobs($1::uuid[], $2::text[], postpones => $3::timestamptz[], p_user => $4, audit => true,
  keys => $5::text[]);

-- name: delete_completed
-- Removes completed jobs on a client's command, and writes events.
with gone as (delete from relevo.job_history where id = any ($1::uuid[]) returning *)
select relevo.announce_jobs(array_agg(id), array_agg(version + 1), array_agg('deleted'::text), array_agg(status), array_agg(-1::smallint),
  array_agg(name), array_agg(lane), array_agg(operation_type), array_agg(attempt), array_agg(host_name), array_agg(error_code),
  array_agg(created_at), array_agg(started_at)), count(*) from gone;

-- name: rerun
-- Makes jobs of the records of failed and canceled runs, on a client's command: ready, behind those that wait, with the data, the
-- saved state and the attempts that they had. Their gates are noted, as those of new jobs.
with gone as (
  delete from relevo.job_history h using relevo.job_transition t
  where h.id = any ($1::uuid[]) and t.from_status = h.status and t.event = 'rerun'
  returning h.*
), made as (
  insert into relevo.job (
    id, sequence, rank, version, created_at, modified_at, run_seconds, attempt, operation_type, depth, status, priority, chained,
    capped, retain, auto_delete, system, hold, lane, handler, name, data, chain, token, owner, created_by, modified_by, saved,
    message_name, extension, regarding_type, regarding_id, correlation, correlation_at, request, series, pattern, anchor, zone,
    nominal, details, batch, origin, attempts)
  select g.id, g.sequence,
    relevo.job_rank(relevo.now(), l.priority, g.priority), g.version + 1, g.created_at, relevo.now(), g.run_seconds, g.attempt, g.operation_type, g.depth, 0, g.priority,
    g.chain is not null, l.owner_cap is not null and g.owner is not null, g.retain, g.auto_delete, g.system, g.hold, g.lane,
    g.handler, g.name, g.data, g.chain, g.token, g.owner, g.created_by, coalesce($2, g.modified_by), g.saved, g.message_name,
    g.extension, g.regarding_type, g.regarding_id, g.correlation, g.correlation_at, g.request, g.series, g.pattern, g.anchor,
    g.zone, g.nominal, g.details - 'deferred_since',  -- it may wait for newer code as long as a new job
    g.batch, g.origin, g.attempts
  from gone g join relevo.job_lane l on l.name = g.lane
  returning *
), counted as (
  insert into relevo.job_batch_delta (batch, failed, canceled)
  select g.batch, -count(*) filter (where g.status = 31), -count(*) filter (where g.status = 32)
  from gone g where g.batch is not null group by g.batch
), noted as (
  insert into relevo.job_gate (key)
  select 'c' || m.chain from made m where m.chain is not null
  union
  select relevo.job_owner_key(m.lane, m.owner) from made m where m.capped
)
select relevo.announce_jobs(array_agg(m.id), array_agg(m.version), array_agg('rerun'::text), array_agg(g.status),
  array_agg(m.status), array_agg(m.name), array_agg(m.lane), array_agg(m.operation_type), array_agg(m.attempt),
  array_agg(null::text), array_agg(null::integer), array_agg(m.created_at), array_agg(null::timestamptz)), count(*)
from made m join gone g on g.id = m.id;

-- name: change_recurrence
-- Changes pattern, anchor and next instant of the waiting row of a series; it leaves its chain until then.
with former as (
  select id, chain, lane, owner from relevo.job where id = $1
), changed as (
  update relevo.job set pattern = $2, anchor = $3, postpone_until = $4, nominal = $4, next_at = null, status = 10,
    chain = null, chained = false, details = details || jsonb_build_object('ordinal', $5::integer),
    version = version + 1, modified_at = relevo.now(), modified_by = coalesce($6, modified_by)
  where id = $1
)
insert into relevo.job_gate (key)
select 'c' || chain from former where chain is not null
union all
select relevo.job_owner_key(lane, owner) from former where owner is not null;

-- name: stop_recurring
-- Turns a waiting row of a series into an ordinary job, in the chain of its token.
with changed as (
  update relevo.job set series = null, pattern = null, next_at = null, version = version + 1, modified_at = relevo.now(),
    modified_by = coalesce($2, modified_by),
    chain = coalesce(s.chain, job.chain), chained = chained or (job.chain is null and s.chain is not null)
  from (select w.id, relevo.job_chain(w.token, w.owner, l.shared_tokens) as chain
        from relevo.job w join relevo.job_lane l on l.name = w.lane where w.id = $1) s
  where job.id = s.id
  returning job.chain
)
insert into relevo.job_gate (key) select 'c' || chain from changed where chain is not null;

-- name: waiting_row
-- The row of a job's series that has not started.
select w.id from relevo.jobs_by_id(array[$1::uuid]) j join relevo.job w on w.series = j.series
where w.attempt = 0 and w.status in (0, 10);

-- name: recurrence_of
-- The recurrence of a job.
select id, series, pattern, anchor, zone, nominal, details, token from relevo.job where id = $1;
