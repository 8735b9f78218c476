-- name: revision
-- How often policies and queues have changed.
select revision from relevo.router_revision;

-- name: all_resources
-- All policies and queues; they are few.
select kind, id, body from relevo.router_resource;

-- name: lock
-- Locks the rows of commands; the function documents the order.
select * from relevo.lock_router($1::text[], $2::text[], $3::uuid[], $4::text[]);

-- name: jobs_by_id
-- Jobs, as `storage.job_of` takes them.
select j.id, j.version, j.activity, j.events, j.created_at, j.modified_at, j.status, j.channel_id,
       j.channel_reference, j.queue_id, j.policy_id, j.priority, j.disposition, j.mode, j.schedule_at, j.scheduled_at,
       j.enqueued_at, j.arrival, j.expedite, j.round, j.unassigned, j.fired, j.entered, j.due_at, j.close_at,
       j.ended_at, j.closing, j.requested, j.attached, j.labels, j.tags, j.notes
from relevo.router_job j where j.id = any ($1::text[]);

-- name: workers_by_id
-- Workers with their load, in the columns of `storage.worker_of`.
select w.id, w.version, w.created_at, w.modified_at, w.available, w.registration, w.registered_at, w.seen_at,
       w.capacity, w.max_offers, w.queues, l.activity, l.events, l.used, l.offers, l.holding, l.idle_since,
       l.acted_at, w.channels, w.labels, w.tags, l.by_channel
from relevo.router_worker w join relevo.router_load l on l.worker_id = w.id where w.id = any ($1::text[]);

-- name: offers_touched
-- Of the jobs locked: what holds a worker, and all assignments; the offers named; what whole workers hold.
select o.id, o.job_id, o.worker_id, o.queue_id, o.channel_id, o.cost, o.state, o.offered_at, o.expires_at,
       o.job_round, o.registration, o.retry_at, o.reason, o.assignment_id, o.assigned_at, o.completed_at, o.ended_at, o.score
from relevo.router_offer o where o.job_id = any ($1::text[]) and (o.ended_at is null or o.assigned_at is not null)
union all
select o.id, o.job_id, o.worker_id, o.queue_id, o.channel_id, o.cost, o.state, o.offered_at, o.expires_at,
       o.job_round, o.registration, o.retry_at, o.reason, o.assignment_id, o.assigned_at, o.completed_at, o.ended_at, o.score
from relevo.router_offer o where o.id = any ($2::uuid[]) and o.ended_at is not null and o.assigned_at is null
union all
select o.id, o.job_id, o.worker_id, o.queue_id, o.channel_id, o.cost, o.state, o.offered_at, o.expires_at,
       o.job_round, o.registration, o.retry_at, o.reason, o.assignment_id, o.assigned_at, o.completed_at, o.ended_at, o.score
from relevo.router_offer o where o.worker_id = any ($3::text[]) and o.ended_at is null;

-- name: show_jobs
-- Jobs with the assignments that they have had, as of one instant.
select j.id, j.version, j.activity, j.events, j.created_at, j.modified_at, j.status, j.channel_id,
       j.channel_reference, j.queue_id, j.policy_id, j.priority, j.disposition, j.mode, j.schedule_at, j.scheduled_at,
       j.enqueued_at, j.arrival, j.expedite, j.round, j.unassigned, j.fired, j.entered, j.due_at, j.close_at,
       j.ended_at, j.closing, j.requested, j.attached, j.labels, j.tags, j.notes,
       (select jsonb_agg(to_jsonb(o)) from relevo.router_offer o where o.job_id = j.id and o.assigned_at is not null) as held
from relevo.router_job j where j.id = any ($1::text[]);

-- name: show_workers
-- Workers with the offers and assignments that they hold, as of one instant.
select w.id, w.version, w.created_at, w.modified_at, w.available, w.registration, w.registered_at, w.seen_at,
       w.capacity, w.max_offers, w.queues, l.activity, l.events, l.used, l.offers, l.holding, l.idle_since,
       l.acted_at, w.channels, w.labels, w.tags, l.by_channel,
       (select jsonb_agg(to_jsonb(o)) from relevo.router_offer o where o.worker_id = w.id and o.ended_at is null) as held, relevo.now() as now
from relevo.router_worker w join relevo.router_load l on l.worker_id = w.id where w.id = any ($1::text[]);

-- name: insert_jobs
-- Stores new jobs; one that is there already is left out of the answer.
insert into relevo.router_job (id, version, activity, events, created_at, modified_at, status, channel_id, channel_reference, queue_id,
       policy_id, priority, disposition, mode, schedule_at, scheduled_at, enqueued_at, arrival, expedite, round,
       unassigned, fired, entered, due_at, close_at, ended_at, closing, requested, attached, labels, tags, notes)
select j.id, j.version, j.activity, j.events, j.created_at, j.modified_at, j.status, j.channel_id,
       j.channel_reference, j.queue_id, j.policy_id, j.priority, j.disposition, j.mode, j.schedule_at, j.scheduled_at,
       j.enqueued_at, j.arrival, j.expedite, j.round, j.unassigned, j.fired, j.entered, j.due_at, j.close_at,
       j.ended_at, j.closing, j.requested, j.attached, j.labels, j.tags, j.notes
from jsonb_populate_recordset(null::relevo.router_job, $1::jsonb) as j
on conflict (id) do nothing
returning id;

-- name: update_jobs
-- Stores jobs whose document has changed.
update relevo.router_job as t set version = j.version, activity = j.activity, events = j.events, modified_at = j.modified_at, status = j.status,
       channel_id = j.channel_id, channel_reference = j.channel_reference, queue_id = j.queue_id,
       policy_id = j.policy_id, priority = j.priority, disposition = j.disposition, mode = j.mode,
       schedule_at = j.schedule_at, scheduled_at = j.scheduled_at, enqueued_at = j.enqueued_at, arrival = j.arrival,
       expedite = j.expedite, round = j.round, unassigned = j.unassigned, fired = j.fired, entered = j.entered,
       due_at = j.due_at, close_at = j.close_at, ended_at = j.ended_at, closing = j.closing, requested = j.requested,
       attached = j.attached, labels = j.labels, tags = j.tags, notes = j.notes
from jsonb_populate_recordset(null::relevo.router_job, $1::jsonb) as j where t.id = j.id;

-- name: move_jobs
-- Stores where jobs stand, of those whose document is as it was.
update relevo.router_job as t set version = j.version, activity = j.activity, events = j.events, modified_at = j.modified_at, status = j.status,
       queue_id = j.queue_id, disposition = j.disposition, mode = j.mode, scheduled_at = j.scheduled_at,
       enqueued_at = j.enqueued_at, arrival = j.arrival, expedite = j.expedite, round = j.round,
       unassigned = j.unassigned, fired = array(select jsonb_array_elements_text(j.fired::jsonb)),
       entered = j.entered, due_at = j.due_at, close_at = j.close_at, ended_at = j.ended_at,
       closing = nullif(j.closing, 'null')::jsonb, requested = j.requested::jsonb, attached = j.attached::jsonb
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[], $8::text[],
       $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[], $13::boolean[], $14::bigint[],
       $15::smallint[], $16::text[], $17::boolean[], $18::timestamptz[], $19::timestamptz[], $20::timestamptz[],
       $21::text[], $22::text[], $23::text[])
  as j (id, version, activity, events, modified_at, status, queue_id, disposition, mode, scheduled_at, enqueued_at,
       arrival, expedite, round, unassigned, fired, entered, due_at, close_at, ended_at, closing, requested, attached)
where t.id = j.id;

-- name: delete_jobs
-- Deletes jobs with their offers.
with gone as (delete from relevo.router_job where id = any ($1::text[]))
delete from relevo.router_offer where job_id = any ($1::text[]);

-- name: insert_workers
-- Stores new workers; one that is there already is left out of the answer.
with given as (
  select * from jsonb_populate_recordset(null::relevo.router_worker, $1::jsonb)
), loaded as (
  select * from jsonb_to_recordset($1::jsonb) as l (id text, activity bigint, events bigint, used bigint, offers integer,
                                                    holding integer, idle_since timestamptz, acted_at timestamptz, by_channel jsonb)
), made as (
  insert into relevo.router_worker (id, version, created_at, modified_at, available, registration, registered_at, seen_at, capacity, max_offers,
       queues, channels, labels, tags)
  select g.id, g.version, g.created_at, g.modified_at, g.available, g.registration, g.registered_at, g.seen_at,
       g.capacity, g.max_offers, g.queues, g.channels, g.labels, g.tags from given g
  on conflict (id) do nothing
  returning id
)
insert into relevo.router_load (worker_id, activity, events, used, offers, holding, idle_since, acted_at, by_channel)
select l.id, l.activity, l.events, l.used, l.offers, l.holding, l.idle_since, l.acted_at, l.by_channel
from loaded l join made m on m.id = l.id
returning worker_id;

-- name: update_workers
-- Stores workers whose document has changed.
update relevo.router_worker as t set version = w.version, modified_at = w.modified_at, available = w.available, registration = w.registration,
       registered_at = w.registered_at, seen_at = w.seen_at, capacity = w.capacity, max_offers = w.max_offers,
       queues = w.queues, channels = w.channels, labels = w.labels, tags = w.tags
from jsonb_populate_recordset(null::relevo.router_worker, $1::jsonb) as w where t.id = w.id;

-- name: put_loads
-- Stores the load of workers.
update relevo.router_load as t set activity = l.activity, events = l.events, used = l.used, offers = l.offers,
       holding = l.holding, idle_since = l.idle_since, acted_at = l.acted_at, by_channel = l.by_channel::jsonb
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[],
            $7::timestamptz[], $8::timestamptz[], $9::text[])
  as l (id, activity, events, used, offers, holding, idle_since, acted_at, by_channel)
where t.worker_id = l.id;

-- name: delete_workers
-- Forgets workers.
with gone as (delete from relevo.router_load where worker_id = any ($1::text[]))
delete from relevo.router_worker where id = any ($1::text[]);

-- name: insert_offers
-- Stores new offers.
insert into relevo.router_offer (id, job_id, worker_id, queue_id, channel_id, cost, state, offered_at, expires_at, job_round, registration,
       retry_at, reason, assignment_id, assigned_at, completed_at, ended_at, score)
select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::text[], $8::timestamptz[],
       $9::timestamptz[], $10::bigint[], $11::bigint[], $12::timestamptz[], $13::text[], $14::uuid[],
       $15::timestamptz[], $16::timestamptz[], $17::timestamptz[], $18::float8[]);

-- name: update_offers
-- Stores the outcome of offers.
update relevo.router_offer as t set state = o.state, retry_at = o.retry_at, reason = o.reason, assignment_id = o.assignment_id,
       assigned_at = o.assigned_at, completed_at = o.completed_at, ended_at = o.ended_at
from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::text[], $5::uuid[], $6::timestamptz[], $7::timestamptz[],
            $8::timestamptz[])
  as o (id, state, retry_at, reason, assignment_id, assigned_at, completed_at, ended_at)
where t.id = o.id;

-- name: step_jobs
-- Stores how far jobs have come that are otherwise as they were.
update relevo.router_job as t set activity = j.activity, events = j.events, modified_at = j.modified_at, status = j.status,
       disposition = j.disposition, due_at = j.due_at, close_at = j.close_at, ended_at = j.ended_at,
       closing = nullif(j.closing, 'null')::jsonb
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::text[], $6::text[], $7::timestamptz[],
            $8::timestamptz[], $9::timestamptz[], $10::text[])
  as j (id, activity, events, modified_at, status, disposition, due_at, close_at, ended_at, closing)
where t.id = j.id;

-- name: put_pointers
-- Stores the worker of a queue's last offer, for round robin.
insert into relevo.router_pointer (queue_id, worker_id)
select * from unnest($1::text[], $2::text[])
on conflict (queue_id) do update set worker_id = excluded.worker_id;

-- name: hints
-- What has happened to whom, behind a position in each stripe of subjects: ids only. Offers are issued by
-- the matcher itself, and it knows; that work is done changes nothing that it looks at. A stripe whose
-- position was trimmed away answers a row without an LSN.
select p.stripe, null as lsn, null as job_id, null as worker_id, null as resource
from unnest($1::integer[], $2::bigint[]) as p (stripe, lsn)
join relevo.event_stripe s on s.id = p.stripe and p.lsn < s.trimmed_lsn
union all
select p.stripe, e.lsn, e.job_id, e.worker_id, e.resource
from unnest($1::integer[], $2::bigint[]) as p (stripe, lsn)
cross join lateral (
  select e.lsn,
         case when e.type not in ('relevo.router.offer.issued', 'relevo.router.job.completed') then e.data ->> 'jobId' end as job_id,
         case when e.type not in ('relevo.router.offer.issued', 'relevo.router.job.completed') then e.data ->> 'workerId' end as worker_id,
         case when e.type = 'relevo.router.touched' then e.data ->> 'resource' end as resource
  from relevo.event e where e.stripe = p.stripe and e.batch > p.lsn and e.lsn > p.lsn
  order by e.batch, e.lsn limit $3
) e;

-- name: matching_jobs
-- Jobs for matching, with the workers that have an open offer of each or declined it.
select j.id, j.status, j.queue_id, j.channel_id, j.priority, j.enqueued_at, j.arrival, j.version, j.round, j.entered,
       j.policy_id, j.requested, j.attached, j.labels, known.offered,
       case when known.declines > 0 then (
         select jsonb_object_agg(d.worker_id, d.retry_at) from (
           select o.worker_id, case when bool_and(o.retry_at is not null) then max(o.retry_at) end as retry_at
           from relevo.router_offer o
           join relevo.router_worker w on w.id = o.worker_id and w.registration = o.registration
           where o.job_id = j.id and o.state = 'declined' and o.job_round = j.round
           group by o.worker_id) d) end as declined,
       j.due_at, j.fired
from relevo.router_job j
cross join lateral (
  select array_agg(o.worker_id) filter (where o.state = 'open') as offered,
         count(*) filter (where o.state = 'declined') as declines
  from relevo.router_offer o where j.status = 'queued' and o.job_id = j.id and o.state in ('open', 'declined')
) known
where j.id = any ($1::text[]);

-- name: unsettled_jobs
-- Ids of the jobs that the matcher has to do with, page by page.
select j.id, j.number from relevo.router_job j
where j.ended_at is null and j.status in ('queued', 'pendingClassification') and j.number > $1
order by j.number limit $2;

-- name: worker_ids
-- Ids of the workers that are available, page by page.
select w.id from relevo.router_worker w where w.available and w.id > $1 order by w.id limit $2;

-- name: pointers
-- The worker of the last offer of each queue.
select queue_id, worker_id from relevo.router_pointer;

-- name: due
-- Offers and jobs that are due, and the seconds until the next due time.
select gone.ids as offers, gone.workers, look.ids as jobs, relevo.now() as now,
       extract(epoch from least(
         (select min(o.expires_at) from relevo.router_offer o where o.state = 'open' and o.expires_at > relevo.now()),
         (select min(j.due_at) from relevo.router_job j where j.due_at > relevo.now())) - relevo.now())::float8 as seconds
from (select array_agg(o.id) as ids, array_agg(o.worker_id) as workers from (
        select o.id, o.worker_id from relevo.router_offer o
        where o.state = 'open' and o.expires_at <= relevo.now() order by o.expires_at limit $1) o) gone,
     (select array_agg(j.id) as ids from (
        select j.id from relevo.router_job j where j.due_at <= relevo.now() order by j.due_at limit $1) j) look;

-- name: idle_workers
-- Workers that have given no sign for so long and hold nothing.
select w.id from relevo.router_worker w join relevo.router_load l on l.worker_id = w.id
where w.available and w.seen_at < relevo.now() - $1::float8 * interval '1 second'
  and l.idle_since < relevo.now() - $1::float8 * interval '1 second' and l.holding = 0
limit 1000;

-- name: forget_offers
-- Forgets offers that came to nothing a day ago and whose job cannot come back to their worker by them.
with gone as (
  delete from relevo.router_offer where id in (
    select o.id from relevo.router_offer o
    where o.state in ('declined', 'expired', 'revoked') and o.ended_at < relevo.now() - $1::float8 * interval '1 second'
      and (o.state <> 'declined' or not exists (
        select from relevo.router_job j where j.id = o.job_id and j.ended_at is null and j.round = o.job_round))
    order by o.ended_at limit $2)
  returning 1
)
select count(*) from gone;

-- name: forget_jobs
-- Forgets jobs that ended so long ago.
with old as (
  select j.id from relevo.router_job j
  where j.ended_at < relevo.now() - $1::float8 * interval '1 second' order by j.ended_at limit $2
  for update skip locked
), gone as (
  delete from relevo.router_offer o using old where o.job_id = old.id
), forgotten as (
  delete from relevo.router_job j using old where j.id = old.id
)
select count(*) from old;

-- name: list_jobs
-- A page of jobs in the order they were made.
select j.id, j.version, j.activity, j.events, j.created_at, j.modified_at, j.status, j.channel_id,
       j.channel_reference, j.queue_id, j.policy_id, j.priority, j.disposition, j.mode, j.schedule_at, j.scheduled_at,
       j.enqueued_at, j.arrival, j.expedite, j.round, j.unassigned, j.fired, j.entered, j.due_at, j.close_at,
       j.ended_at, j.closing, j.requested, j.attached, j.labels, j.tags, j.notes,
       (select jsonb_agg(to_jsonb(o)) from relevo.router_offer o where o.job_id = j.id and o.assigned_at is not null) as held, j.number
from relevo.router_job j
where j.number > $1
  and ($3::text[] is null or j.status = any ($3)) and ($4::text is null or j.queue_id = $4)
  and ($5::text is null or j.channel_id = $5) and ($6::text is null or j.policy_id = $6)
  and ($7::timestamptz is null or j.scheduled_at <= $7) and ($8::timestamptz is null or j.scheduled_at >= $8)
order by j.number limit $2;

-- name: list_unfinished_jobs
-- The same of those that have not ended, which may be few among many.
select j.id, j.version, j.activity, j.events, j.created_at, j.modified_at, j.status, j.channel_id,
       j.channel_reference, j.queue_id, j.policy_id, j.priority, j.disposition, j.mode, j.schedule_at, j.scheduled_at,
       j.enqueued_at, j.arrival, j.expedite, j.round, j.unassigned, j.fired, j.entered, j.due_at, j.close_at,
       j.ended_at, j.closing, j.requested, j.attached, j.labels, j.tags, j.notes,
       (select jsonb_agg(to_jsonb(o)) from relevo.router_offer o where o.job_id = j.id and o.assigned_at is not null) as held, j.number
from relevo.router_job j
where j.number > $1 and j.ended_at is null
  and ($3::text[] is null or j.status = any ($3)) and ($4::text is null or j.queue_id = $4)
  and ($5::text is null or j.channel_id = $5) and ($6::text is null or j.policy_id = $6)
  and ($7::timestamptz is null or j.scheduled_at <= $7) and ($8::timestamptz is null or j.scheduled_at >= $8)
order by j.number limit $2;

-- name: list_workers
-- A page of workers in the order they were made.
select w.id, w.version, w.created_at, w.modified_at, w.available, w.registration, w.registered_at, w.seen_at,
       w.capacity, w.max_offers, w.queues, l.activity, l.events, l.used, l.offers, l.holding, l.idle_since,
       l.acted_at, w.channels, w.labels, w.tags, l.by_channel
,
       (select jsonb_agg(to_jsonb(o)) from relevo.router_offer o where o.worker_id = w.id and o.ended_at is null) as held, w.number
from relevo.router_worker w join relevo.router_load l on l.worker_id = w.id
where w.number > $1
  and ($3::text is null or $3 = case when w.available then 'active' when l.holding > 0 then 'draining' else 'inactive' end)
  and ($4::text is null or w.queues @> array[$4])
  and ($5::text is null or w.channels @> jsonb_build_array(jsonb_build_object('channelId', $5::text)))
  and (not $6::boolean or exists (
    select from jsonb_to_recordset(w.channels) as c ("channelId" text, "capacityCostPerJob" bigint, "maxNumberOfJobs" bigint)
    where ($5::text is null or c."channelId" = $5) and l.used + c."capacityCostPerJob" <= w.capacity
      and (c."maxNumberOfJobs" is null or coalesce((l.by_channel ->> c."channelId")::bigint, 0) < c."maxNumberOfJobs")))
order by w.number limit $2;

-- name: standing
-- How many wait in a queue, by urgency, and since when the first.
select j.expedite, j.priority, count(*) as jobs, min(j.enqueued_at) as since, relevo.now() as now
from relevo.router_job j where j.queue_id = $1 and j.status = 'queued'
group by j.expedite, j.priority;

-- name: place
-- How many of a queue come before a job: before it by the order of waiting.
select count(*) as ahead, relevo.now() as now
from relevo.router_job j, relevo.router_job me
where me.id = $1 and j.queue_id = me.queue_id and j.status = 'queued'
  and (me.expedite, -j.priority, j.enqueued_at, j.arrival, j.id) < (j.expedite, -me.priority, me.enqueued_at, me.arrival, me.id);

-- name: departures
-- How many minutes ago the last jobs left a queue for a worker, and for how many workers had them.
select extract(epoch from relevo.now() - o.assigned_at)::float8 / 60 as age,
       extract(epoch from o.ended_at - o.assigned_at)::float8 / 60 as handling
from relevo.router_offer o
where o.queue_id = $1 and o.assigned_at > relevo.now() - interval '1 hour'
order by o.assigned_at desc limit $2;

-- name: slots
-- How many jobs the active workers of a queue can have at a time, by their cheapest channel.
select coalesce(sum(greatest(1, w.capacity / greatest(1, (
         select min(c."capacityCostPerJob") from jsonb_to_recordset(w.channels) as c ("capacityCostPerJob" bigint))))), 0)::bigint
from relevo.router_worker w where w.available and w.queues @> array[$1::text];

-- name: see_worker
-- Notes a sign of life of a worker.
update relevo.router_worker set seen_at = relevo.now() where id = $1 and seen_at < relevo.now() - interval '1 hour';

-- name: lock_resources
-- Lets one transaction at a time change policies and queues, with no command beside it.
select relevo.lock_router_resources();

-- name: get_resource
-- A policy or queue.
select kind, id, number, version, modified_at, body from relevo.router_resource where kind = $1 and id = $2;

-- name: version_of_resource
-- Which version of a policy or queue there is.
select number, version from relevo.router_resource where kind = $1 and id = $2;

-- name: list_resources
-- A page of policies or queues, in the order of their creation.
select kind, id, number, version, modified_at, body
from relevo.router_resource
where kind = $1 and number > $2
order by number limit $3;

-- name: insert_resource
-- A new policy or queue; the lock of all is held.
insert into relevo.router_resource (kind, id, body, created_at, modified_at)
select $1, $2, $3::jsonb, t.now, t.now from relevo.now_after_waiting() as t (now)
returning kind, id, number, version, modified_at, body;

-- name: update_resource
-- A policy or queue has changed; the lock of all is held.
update relevo.router_resource
set body = $3::jsonb, version = version + 1, modified_at = relevo.now_after_waiting()
where kind = $1 and id = $2
returning kind, id, number, version, modified_at, body;

-- name: delete_resource
-- A policy or queue is gone, and whose turn it was there; the lock of all is held.
with turn as (delete from relevo.router_pointer where $1 = 'queues' and queue_id = $2)
delete from relevo.router_resource where kind = $1 and id = $2
returning kind, id, number, version, modified_at, body;

-- name: existing_resources
-- Which of these policies and queues exist.
select r.kind, r.id
from unnest($1::text[], $2::text[]) as wanted (kind, id)
join relevo.router_resource r on r.kind = wanted.kind and r.id = wanted.id;

-- name: users_of
-- References to a policy or queue: from other policies and queues, and from unfinished jobs.
select r.kind, r.id from relevo.router_resource r
where case $1
        when 'distributionPolicies' then r.kind = 'queues' and r.body ->> 'distributionPolicyId' = $2
        when 'exceptionPolicies' then r.kind = 'queues' and r.body ->> 'exceptionPolicyId' = $2
        when 'classificationPolicies' then r.kind = 'exceptionPolicies' and r.body @> jsonb_build_object(
          'exceptionRules', jsonb_build_array(jsonb_build_object(
            'actions', jsonb_build_array(jsonb_build_object('classificationPolicyId', $2::text)))))
        when 'queues' then r.kind = 'classificationPolicies' and (
          r.body ->> 'fallbackQueueId' = $2
          or r.body @> jsonb_build_object('queueSelectorAttachments', jsonb_build_array(jsonb_build_object(
            'kind', 'static', 'queueSelector',
            jsonb_build_object('key', 'Id', 'labelOperator', 'equal', 'value', $2::text)))))
      end
union all
(select 'jobs', j.id from relevo.router_job j
 where $1 = 'queues' and j.queue_id = $2 and j.ended_at is null limit 1)
union all
(select 'jobs', j.id from relevo.router_job j
 where $1 = 'classificationPolicies' and j.policy_id = $2 and j.ended_at is null limit 1)
limit 4;

-- name: offer_events
-- What has happened to the offers of a worker behind a position, and where its stripe of the log ends as of
-- this look; at least one row, without an event if there is none.
select l.incarnation, s.trimmed_lsn, head.lsn as head, e.lsn, e.type, e.data
from relevo.event_log l
join relevo.event_stripe s on s.id = 2147480000 + (hashtext($1) & 15)
cross join lateral (
  select greatest(s.trimmed_lsn, (select max(b.last) from relevo.event_batch b where b.stripe = s.id)) as lsn) head
left join lateral (
  select e.lsn, e.type, e.data from relevo.event e
  where $2::bigint >= 0 and e.stripe = s.id and e.batch > $2 and e.lsn > $2 and e.subject = $1
    and e.type in ('relevo.router.offer.issued', 'relevo.router.offer.accepted', 'relevo.router.offer.declined',
                   'relevo.router.offer.revoked', 'relevo.router.offer.expired')
  order by e.lsn limit $3
) e on true
order by e.lsn;

-- name: open_offers
-- The open offers of a worker with their jobs, after a given offer, or those with the given ids.
select o.id, o.worker_id, o.job_id, o.queue_id, o.channel_id, j.channel_reference, o.cost, o.offered_at, o.expires_at,
       j.priority, j.labels, j.tags
from relevo.router_offer o join relevo.router_job j on j.id = o.job_id
where o.worker_id = $1 and o.ended_at is null and o.state = 'open' and ($2::uuid[] is null or o.id = any ($2))
  and (o.expires_at is null or o.expires_at > relevo.now())
  and ($3::timestamptz is null or (o.offered_at, o.id) > ($3, $4::uuid))
order by array_position($2::uuid[], o.id), o.offered_at, o.id limit $5;

-- name: offers_by_time
-- The open offers of all workers, the newest first, after a given one.
select o.id as offer_id, o.worker_id, o.job_id, o.queue_id, o.channel_id, o.cost as capacity_cost, o.offered_at, o.expires_at
from relevo.router_offer o
where o.state = 'open' and ($1::timestamptz is null or (o.offered_at, o.id) < ($1, $2::uuid))
order by o.offered_at desc, o.id desc limit $3;

-- name: workers_of_queue
-- Workers that list a queue, available or not.
select w.id from relevo.router_worker w where w.queues @> array[$1::text] order by w.available desc, w.id limit $2;

-- name: waiting_for_worker
-- The first jobs that wait in the queues of a worker.
select j.id from relevo.router_job j where j.status = 'queued' and j.queue_id = any ($1::text[])
order by j.expedite desc, j.priority desc, j.enqueued_at, j.arrival, j.id limit $2;

-- name: waiting_by_queue
-- How many jobs wait in each queue.
select j.queue_id, count(*) as jobs from relevo.router_job j where j.status = 'queued' group by j.queue_id;

-- name: offers_of_job
-- The offers of a job and their outcomes, the latest first.
select o.id, o.worker_id, o.state, o.reason, o.offered_at, o.ended_at, o.retry_at, o.score
from relevo.router_offer o where o.job_id = $1 order by o.offered_at desc, o.id limit $2;

-- name: put_channel
-- Gives a channel a name.
insert into relevo.router_channel (id, name) values ($1, $2) on conflict (id) do update set name = excluded.name;

-- name: channels
-- The channels that were given a name.
select id, name from relevo.router_channel order by id;

-- name: queue_overview
-- An overview of queues, by id: waiting, offered and assigned jobs, the longest wait, and workers.
select r.id as queue_id, r.body ->> 'name' as name, coalesce(waiting.jobs, 0) as waiting,
       extract(epoch from greatest(relevo.now() - waiting.since, case when waiting.since is not null then interval '0' end))::float8
         as longest_wait_seconds,
       coalesce(held.offers, 0) as offers, coalesce(held.assigned, 0) as assigned,
       coalesce(crew.active, 0) as workers_active, coalesce(crew.draining, 0) as workers_draining,
       coalesce(crew.inactive, 0) as workers_inactive
from relevo.router_resource r
left join (
  select j.queue_id, count(*) as jobs, min(j.enqueued_at) as since
  from relevo.router_job j where j.status = 'queued' group by j.queue_id) waiting on waiting.queue_id = r.id
left join (
  select o.queue_id, count(*) filter (where o.state = 'open') as offers, count(*) filter (where o.state <> 'open') as assigned
  from relevo.router_offer o where o.ended_at is null group by o.queue_id) held on held.queue_id = r.id
left join (
  select q.id, count(*) filter (where w.available) as active,
         count(*) filter (where not w.available and l.holding > 0) as draining,
         count(*) filter (where not w.available and l.holding = 0) as inactive
  from relevo.router_worker w join relevo.router_load l on l.worker_id = w.id, unnest(w.queues) as q (id)
  group by q.id) crew on crew.id = r.id
where r.kind = 'queues' and ($1::text is null or r.id = $1) and r.id > $2
order by r.id limit $3;

-- name: queue_service
-- How quickly the latest jobs of each queue were taken: assignments since an instant, at most 2,000 of a queue, how many came
-- within a time, and the mean wait.
select r.id as queue_id, count(*) as assigned, count(*) filter (where a.waited <= $2::interval) as within,
       extract(epoch from avg(a.waited))::float8 as mean_wait_seconds
from relevo.router_resource r
cross join lateral (
  select greatest(o.assigned_at - j.enqueued_at, interval '0') as waited
  from relevo.router_offer o join relevo.router_job j on j.id = o.job_id
  where o.queue_id = r.id and o.assigned_at >= relevo.now() - $1::interval and j.enqueued_at is not null
  order by o.assigned_at desc limit 2000) a
where r.kind = 'queues'
group by r.id order by r.id limit $3;

-- name: waiting_by_skill
-- What waiting jobs ask of workers, the most wanted first, and how long the oldest waits; at most 5,000 jobs are looked at.
select s.selector ->> 'key' as key, s.selector ->> 'labelOperator' as label_operator, s.selector -> 'value' as value,
       count(*) as waiting, extract(epoch from relevo.now() - min(w.enqueued_at))::float8 as longest_wait_seconds
from (select j.requested, j.attached, j.enqueued_at from relevo.router_job j where j.status = 'queued' limit 5000) w
cross join lateral jsonb_array_elements(w.requested || w.attached) as s (selector)
group by 1, 2, 3 order by waiting desc, 1, 2 limit $1;
