-- name: suspend
-- Suspends a job on behalf of its host, inside a transaction of the handler.
select * from relevo.move_jobs(array[$1::uuid], array['await'], $2, array[$3::bigint], postpones => array[$4::timestamptz],
  seconds => array[$5::float8]);

-- name: wait_for_time
-- Makes a suspended job wait for its time only.
update relevo.job set waiting_event = false where id = $1 and status = 10;

-- name: lock_event
-- First statement of a transaction that waits for an event, so that none is missed or comes twice.
select relevo.lock_job_event($1, $2);

-- name: read_waits
-- The waits of a job at a step, and the time; children with their outcome.
select w.part, w.event, w.child, w.deadline, w.came_at, w.data, relevo.now() as now,
  w.child is not null and not relevo.is_live(w.child) as over,
  h.status, h.result, h.error_code, h.friendly, coalesce(h.friendly, h.message) as text
from relevo.job_wait w left join relevo.job_history h on h.id = w.child
where w.job = $1 and w.step = $2 order by w.part;

-- name: take_event
-- Takes the oldest kept event of a name and key.
delete from relevo.job_event where id = (
  select e.id from relevo.job_event e where e.event = $1 and e.key = $2 order by e.id limit 1)
returning data;

-- name: begin_wait
-- Records a wait of a job; its time runs from the first record.
insert into relevo.job_wait (job, step, part, event, key, child, deadline)
values ($1, $2, $3, $4, $5, $6, coalesce($7::timestamptz, relevo.now() + make_interval(secs => $8)))
on conflict (job, step, part) do update set woken = false
returning deadline;

-- name: end_waits
-- Removes waits of a job at a step, or before it.
delete from relevo.job_wait where job = $1 and step <= $2;

-- name: signal
-- Delivers an event to the jobs that wait for it, or keeps it.
select relevo.signal_jobs($1, $2, $3);

-- name: wake
-- Wakes jobs whose deadline has passed, or whose children have ended.
select relevo.wake_waiting_jobs($1);

-- name: orphans
-- Unfinished children of canceled or deleted jobs, and the user who canceled or deleted the parent.
select w.child as id, h.modified_by as by from relevo.job_wait w left join relevo.job_history h on h.id = w.job
where w.child is not null and not w.woken and (h.status = 32 or h.id is null)
  and not exists (select from relevo.job j where j.id = w.job and not j.deleted) and relevo.is_live(w.child) limit $1;

-- name: forget_waits
-- Removes waits of jobs that are gone, and events that were kept too long. A wait for a child that has not ended stays: it
-- is how the leader finds the children of canceled and deleted jobs.
with waits as (
  delete from relevo.job_wait w where w.ctid = any (array(
    select o.ctid from relevo.job_wait o
    where not exists (select from relevo.job j where j.id = o.job) and (o.child is null or not relevo.is_live(o.child))
    limit $2))
  returning 1
), events as (
  delete from relevo.job_event e where e.id = any (array(
    select o.id from relevo.job_event o where o.at < relevo.now() - $1::interval order by o.id limit $2))
  returning 1
)
select (select count(*) from waits) + (select count(*) from events);
