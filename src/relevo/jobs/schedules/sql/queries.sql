-- name: stored
-- Schedules by name, as they were declared.
select name, recurrence from relevo.job_schedule where name = any ($1::text[]);

-- name: declare
-- Stores a schedule unless there is one of that name.
insert into relevo.job_schedule (name, recurrence, series, anchor, token)
values ($1, $2, $3, $4, $5) on conflict (name) do nothing;

-- name: lock
-- Locks a schedule.
select * from relevo.job_schedule where name = $1 for update;

-- name: change
-- Gives a schedule another recurrence.
update relevo.job_schedule set recurrence = $2, anchor = $3, token = $4, declared_at = relevo.now() where name = $1;

-- name: remove
-- Removes a schedule.
delete from relevo.job_schedule where name = $1;

-- name: pause
-- Pauses a schedule, until a time or until it is resumed; with false it goes on.
update relevo.job_schedule set paused_at = case when $2 then relevo.now() end, paused_until = $3 where name = $1;

-- name: drop_rows
-- Removes the runs of a series that have not started. With $2, one that is due becomes an ordinary job and still runs.
with gone as (
  delete from relevo.job where series = $1 and attempt = 0 and status in (0, 10) and not ($2 and status = 0)
  returning chain, lane, owner, capped
), freed as (
  update relevo.job set series = null, pattern = null, next_at = null, version = version + 1, modified_at = relevo.now()
  where series = $1 and attempt = 0 and status = 0 and $2
)
insert into relevo.job_gate (key) select 'c' || chain from gone where chain is not null;

-- name: has_rows
-- Whether a series has a run that has not started.
select exists (select from relevo.job where series = $1 and attempt = 0 and status in (0, 10));

-- name: list
-- Schedules with their next run and their last one, by name, after a name; or one of them.
select s.*, relevo.now() as now, h.served_at,
  (select min(coalesce(j.postpone_until, j.created_at)) from relevo.job j
   where j.series = s.series and j.attempt = 0 and j.status in (0, 10)) as next_run,
  coalesce(r.id, e.id) as last_id, coalesce(r.status, e.status) as last_status, coalesce(r.started_at, e.started_at) as last_started_at
from relevo.job_schedule s
left join relevo.job_handler h on h.name = s.name
left join lateral (
  select j.id, j.status, j.started_at from relevo.job j where j.series = s.series and j.attempt > 0 and not j.deleted order by j.id desc limit 1) r on true
left join lateral (
  select j.id, j.status, j.started_at from relevo.job_history j where j.series = s.series order by j.id desc limit 1) e on true
where ($1::text is null or s.name = $1) and s.name > $2
order by s.name limit $3;

-- name: token_of
-- The token of a schedule's runs.
select token from relevo.job_schedule where name = $1;
