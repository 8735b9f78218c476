-- name: take_sample
-- Measures all parts and stores the figures as the first sample of each step that has none, and removes old samples.
with clock as (select relevo.now() as at),
jobs as (
  select coalesce(round(sum(jobs) filter (where status = 0)), 0) as ready,
    coalesce(round(sum(jobs) filter (where status = 10)), 0) as suspended,
    coalesce(round(sum(jobs) filter (where status >= 20)), 0) as running, min(created_at) filter (where status = 0) as oldest
  from relevo.counted_job),
ends as (
  select count(*) filter (where h.status = 30) as succeeded, count(*) filter (where h.status = 31) as failed
  from clock c, relevo.job_history h where h.completed_at > c.at - interval '1 minute'),
router_jobs as (
  select count(*) as waiting, min(enqueued_at) as oldest from relevo.router_job where status = 'queued'),
offers as (
  select count(*) filter (where state = 'open') as open, count(*) filter (where state <> 'open') as assigned
  from relevo.router_offer where ended_at is null),
messages as (
  select sum(c.active) filter (where c.sub_queue = 0) as active, sum(c.active + c.locked + c.deferred) filter (where c.sub_queue > 0) as dead,
    sum(c.sent) as sent, sum(c.completed) as completed
  from (select active, locked, deferred, sub_queue, sent, completed from relevo.message_count
        union all select active, locked, deferred, sub_queue, sent, completed from relevo.message_delta) c),
waits as (
  select coalesce(sum(w.amount), 0) as delivered, coalesce(sum(w.amount * 0.00075 * 2 ^ w.bucket), 0) as seconds
  from (select bucket, amount from relevo.message_wait union all select bucket, amount from relevo.message_wait_delta) w),
feeds as (
  select coalesce(max(extract(epoch from c.at - o.ts)), 0) as lag_seconds, count(o.ts) as behind
  from clock c cross join (
    select l.position, f.epk_min, f.epk_max from relevo.feed_lease f join relevo.lease l on l.id = f.lease_id
    where jsonb_typeof(l.position) = 'object' limit 500) f
  cross join lateral jsonb_each_text(f.position) as p (range_id, lsn)
  left join lateral (
    select i.ts from relevo.item i
    where i.range_id = p.range_id::integer and i.lsn > p.lsn::bigint and i.epk >= f.epk_min and i.epk < f.epk_max
    order by i.lsn limit 1) o on true),
actors as (
  select (select count(*) from (select from relevo.actor_message where dead_at is null limit 10000) m) as messages,
    (select count(*) from (select from relevo.actor_message where dead_at is not null limit 10000) m)
      + (select count(*) from (select from relevo.actor_reminder where dead_at is not null limit 10000) r) as dead),
leases as (
  select count(*) as total, count(*) filter (where handoff_to is not null) as moving, count(*) filter (where owner is null) as free
  from relevo.lease),
hosts as (select count(*) as live from relevo.host where ended_at is null),
measured as (
  select c.at, jsonb_build_object(
    'jobs.ready', j.ready, 'jobs.suspended', j.suspended, 'jobs.running', j.running,
    'jobs.oldest_seconds', extract(epoch from c.at - j.oldest)::float8,
    'jobs.submitted', (select case when is_called then last_value else 0 end from relevo.job_sequence),
    'jobs.succeeded_per_minute', e.succeeded, 'jobs.failed_per_minute', e.failed,
    'router.waiting', r.waiting, 'router.oldest_seconds', extract(epoch from c.at - r.oldest)::float8,
    'router.offers', o.open, 'router.assigned', o.assigned,
    'messages.active', coalesce(m.active, 0), 'messages.dead', coalesce(m.dead, 0), 'messages.sent', coalesce(m.sent, 0),
    'messages.completed', coalesce(m.completed, 0), 'messages.delivered', w.delivered, 'messages.waited_seconds', w.seconds,
    'feeds.lag_seconds', f.lag_seconds, 'feeds.behind', f.behind, 'actors.messages', a.messages, 'actors.dead', a.dead,
    'leases.total', l.total, 'leases.moving', l.moving, 'leases.free', l.free, 'hosts.live', h.live) as figures
  from clock c, jobs j, ends e, router_jobs r, offers o, messages m, waits w, feeds f, actors a, leases l, hosts h),
stored as (
  insert into relevo.figure_sample (step_seconds, at, figures)
  select s.seconds, to_timestamp(floor(extract(epoch from m.at) / s.seconds) * s.seconds), m.figures
  from measured m, unnest(array[10, 60, 3600]) as s (seconds)
  on conflict do nothing),
removed as (
  delete from relevo.figure_sample f using clock c
  where f.at < c.at - case f.step_seconds when 10 then interval '1 hour' when 60 then interval '1 day' else interval '30 days' end)
select at from clock;

-- name: read_samples
-- The samples of a step, the oldest first, with the present time; one row without a sample if there is none.
select c.at as now, f.at, f.figures::text as figures
from (select relevo.now() as at) c left join relevo.figure_sample f on f.step_seconds = $1 order by f.at;
