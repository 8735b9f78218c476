-- name: submit
-- Submits jobs, one element of each array per job; see the function.
select relevo.submit_jobs($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
  $7::text[], $8::smallint[], $9::uuid[], $10::text[]::jsonb[]);

-- name: submit_plain
-- The same for plain jobs, which most are; every further argument costs time.
select relevo.submit_jobs($1::uuid[], $2::text[], $3::text[]);

-- name: submit_rows
-- The same without the function, for rows of one handler that differ only in key and data: the usual single submit. It stores
-- and returns none if their lane writes an event of each submit, or if there is no such lane.
insert into relevo.job (
  id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
  correlation, correlation_at, extension, message_name)
select g.id, p.rank, p.at, p.at, 0, p.priority, p.operation_type, p.lane, $1, p.name, g.data, p.auto_delete, g.id, p.at, $1, $1
from (
  select t.at, l.name as lane, coalesce($2, $1) as name, coalesce($4::smallint, h.priority, 4::smallint) as priority,
    (extract(epoch from t.at) * 1000000)::bigint - case when l.priority then coalesce($4::smallint, h.priority, 4) * 60000000::bigint else 0 end as rank,
    coalesce(h.operation_type, 54) as operation_type, coalesce(h.auto_delete, false) as auto_delete
  from (select relevo.now() as at) t
  left join relevo.job_handler h on h.name = $1
  join relevo.job_lane l on l.name = coalesce($3, h.lane, 'default')
  where l.events <> 'all' offset 0
) p cross join unnest($5::uuid[], $6::text[]) as g (id, data)
returning true;

-- name: submit_unique
-- The same for jobs of which some are unique; returns those that exist already.
select relevo.submit_unique_jobs($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
  $7::text[], $8::smallint[], $9::uuid[], $10::text[]::jsonb[]);

-- name: wait_for_keys
-- How long this transaction waits for others that submit jobs of the same keys.
select pg_catalog.set_config('lock_timeout', $1, true);

-- name: forget_unique_keys
-- Removes keys of unique jobs that count no more, from a key on; returns how many, and the next key.
with looked as materialized (
  select u.key, u.job, u.until from relevo.job_unique u where $1::bytea is null or u.key > $1 order by u.key limit $2
), gone as (
  delete from relevo.job_unique d using looked l
  where d.key = l.key and d.job = l.job and coalesce(l.until < relevo.now(), true) and not relevo.is_live(l.job)
  returning 1
)
select (select count(*) from gone) as removed, key from looked order by key desc limit 1;

-- name: work
-- Settles finished jobs of a host and claims the next: one round trip, one commit.
select * from relevo.serve_jobs($1, $2, $3, $4::text[], $5::integer[], $6::text[], $7::text[], $8::uuid[], $9::text[],
  $10::bigint[], $11::timestamptz[], $12::float8[], $13::integer[], $14::text[], $15::text[], $16::text[], $17::text[],
  $18::float8[], $19::text[], $20::integer[], $21, $22);

-- name: claim
-- The same if there is nothing to settle.
select * from relevo.serve_jobs($1, $2, $3, $4::text[], $5::integer[], $6::text[], $7::text[],
  slots => $8::integer[], singly => $9, vacant => $10);

-- name: lanes_with_jobs
-- The lanes for whose handlers a job is ready, or a parcel of them.
select distinct h.lane from unnest($1::text[], $2::text[]) as h (lane, handler)
where exists (
    select from relevo.job j where j.handler = h.handler and j.status = 0 and not j.chained and not j.capped and not j.alone)
  or exists (select from relevo.job_parcel q where q.host is null and q.handler = h.handler);

-- name: claim_lone
-- Claims a job that must run alone.
select * from relevo.claim_lone_job($1, $2, $3, $4::text[], $5::text[], $6);

-- name: end_alone
-- Records that a job no longer runs alone.
update relevo.job set alone = false where id = $1 and host = $2 and claim = $3 returning id;

-- name: held
-- The jobs that a host holds, all or by claim numbers; the columns are those of relevo.job_notice.
select 'claimed' as kind, j.id, null::smallint as status, j.claim, j.lane, j.handler, j.name, j.data, j.attempt,
  j.operation_type, date_part('epoch', j.created_at) as created, relevo.job_particulars(j) as particulars,
  null::uuid[] as ids, null::text[] as datas
from relevo.job j where j.host = $1 and ($2::bigint[] is null or j.claim = any ($2))
order by j.rank, j.sequence;

-- name: held_jobs
-- Ids and claim numbers of the jobs that a host holds.
select id, claim from relevo.job where host = $1
union all
select i.id, p.claim from relevo.job_parcel p cross join unnest(p.ids) as i (id)
where p.host = $1 and not (i.id = any (p.done));

-- name: unpack
-- Turns jobs in parcels into rows.
select relevo.unpack_jobs($1::uuid[]);

-- name: unpack_held
-- Turns jobs in parcels of a host into rows: all, or by claim numbers.
select relevo.unpack_parcels($1, $2::bigint[]);

-- name: set_aside
-- Postpones a row of a series whose next instant cannot be computed on this host.
update relevo.job set postpone_until = relevo.now() + interval '1 hour', friendly = $2, version = version + 1,
  modified_at = relevo.now() where id = $1;

-- name: checkpoints
-- Stores checkpoints, and returns the status of their jobs.
select * from relevo.checkpoint_jobs($1, $2::uuid[], $3::bigint[], $4::real[], $5::text[]);

-- name: urgent_jobs
-- Ready jobs of handlers that running ones make room for, the most urgent first.
select * from relevo.urgent_jobs($1::text[], $2);

-- name: jobs_to_stop
-- Running jobs of a host that may make room, with how often they did.
select * from relevo.jobs_to_stop($1, $2::uuid[]);

-- name: ask_for_room
-- Notes which running job makes room for which waiting one, and returns those that do.
select id from relevo.ask_for_room($1, $2::text[], $3::uuid[], $4::uuid[], $5::bigint[], $6) as id;

-- name: hold_job
-- Locks the row of a job that a host still holds under a claim, so that no other host can take it until the transaction
-- ends. Checkpoints remain possible. A process that is suspended loses the lock.
select j.status, relevo.stay_awake() from relevo.job j
where j.id = $1 and j.host = $2 and j.claim = $3 and not j.deleted for key share;

-- name: lock_gates
-- Locks gates in one order; first statement of a transaction that ends jobs.
select relevo.lock_job_gates($1::text[]);

-- name: settle
-- Moves jobs on behalf of their host, inside a transaction of the handler.
-- path: any
select * from relevo.move_jobs($1::pg_catalog.uuid[], $2::pg_catalog.text[], $3::pg_catalog.uuid, $4::pg_catalog.int8[],
  results => $5::pg_catalog.text[], seconds => $6::pg_catalog.float8[], keys => $7::pg_catalog.text[]);

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
    nominal, details)
  select g.id, g.sequence,
    (extract(epoch from relevo.now()) * 1000000)::bigint - case when l.priority then g.priority * 60000000::bigint else 0 end,
    g.version + 1, g.created_at, relevo.now(), g.run_seconds, g.attempt, g.operation_type, g.depth, 0, g.priority,
    g.chain is not null, l.owner_cap is not null and g.owner is not null, g.retain, g.auto_delete, g.system, g.hold, g.lane,
    g.handler, g.name, g.data, g.chain, g.token, g.owner, g.created_by, coalesce($2, g.modified_by), g.saved, g.message_name,
    g.extension, g.regarding_type, g.regarding_id, g.correlation, g.correlation_at, g.request, g.series, g.pattern, g.anchor,
    g.zone, g.nominal, g.details - 'deferred_since'  -- it may wait for newer code as long as a new job
  from gone g join relevo.job_lane l on l.name = g.lane
  returning *
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

-- name: jobs_due
-- In how many seconds a host has anything to do for jobs; see the function.
select relevo.jobs_due($1::uuid, $2::text[], $3::boolean) as seconds;

-- name: late_series
-- Whether a row of a series has been ready for a while; see `ready_series`.
select exists (
  select from relevo.job j where j.series is not null and j.status = 0 and j.attempt = 0 and j.postpone_until is not null
    and greatest(j.nominal, j.postpone_until) < relevo.now() - interval '2 s') as late;

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
  (select case when j.seconds > 0 then j.seconds end from (
    select extract(epoch from j.postpone_until - relevo.now())::float8 as seconds from relevo.job j
    where j.status = 10 and j.postpone_until is not null and not j.waiting_event order by j.postpone_until limit 1) j) as next;

-- name: recover
-- Takes jobs from hosts that have ended, $1 at a time.
select relevo.recover_jobs($1, $2, $3);

-- name: due_series
-- Due rows of series; their next instant is computed before they become ready.
-- `caught_up` is when the claim of the former run created the row: instants due by then are not missed.
select j.id, j.series, j.pattern, j.anchor, j.zone, j.nominal, j.postpone_until, j.details, j.token, relevo.now() as now,
  case when j.id <> j.series then j.created_at end as caught_up, exists (select from relevo.job r where r.series = j.series and r.attempt > 0) as running
from relevo.job j
where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event and j.series is not null and j.attempt = 0
order by j.postpone_until limit $1 for update skip locked;

-- name: start_series_rows
-- Makes rows of series ready, or prepares them: they join the end of their chain, which is that of their token or, if runs
-- must not overlap, that of the series.
with turned as (
  update relevo.job j set status = $8, sequence = nextval('relevo.job_sequence'), rank = (extract(epoch from relevo.now()) * 1000000)::bigint
      - case when l.priority then j.priority * 60000000::bigint else 0 end,
    next_at = s.next_at, nominal = s.nominal, chain = c.chain, chained = c.chain is not null, friendly = coalesce(s.late, j.friendly),
    capped = l.owner_cap is not null and j.owner is not null,
    details = j.details || jsonb_build_object('ordinal', s.ordinal, 'next_ordinal', s.next_ordinal),
    version = j.version + 1, modified_at = relevo.now()
  from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::boolean[], $5::text[], $6::integer[], $7::integer[])
      as s (id, nominal, next_at, queued, late, ordinal, next_ordinal)
    join relevo.job w on w.id = s.id
    join relevo.job_lane l on l.name = w.lane
    cross join lateral (select coalesce(
      relevo.job_chain(w.token, w.owner, l.shared_tokens), case when s.queued then 's' || w.series end) as chain) c
  where j.id = s.id and j.status = 10
  returning j.chain, j.capped, j.lane, j.owner
)
insert into relevo.job_gate (key)
select 'c' || chain from turned where chain is not null
union all
select relevo.job_owner_key(lane, owner) from turned where capped;

-- name: skip_series_rows
-- Moves waiting rows of series to a later instant.
update relevo.job j set postpone_until = s.at, nominal = s.at, version = j.version + 1, modified_at = relevo.now(),
  details = j.details || jsonb_build_object('ordinal', s.ordinal)
from unnest($1::uuid[], $2::timestamptz[], $3::integer[]) as s (id, at, ordinal) where j.id = s.id and j.status = 10;

-- name: ready_series
-- Rows of series that have been ready for a while and do not run, in pages; without resumed rows, which are not late.
select j.id, j.series, j.details, relevo.now() as now, greatest(j.nominal, j.postpone_until) as since
from relevo.job j
where j.series > $1 and j.status = 0 and j.attempt = 0 and j.postpone_until is not null
  and greatest(j.nominal, j.postpone_until) < relevo.now() - interval '2 s'
order by j.series limit $2;

-- name: mark_late
-- Notes how late rows of series are, unless they have started meanwhile.
with free as (
  select id from relevo.job where id = any ($1::uuid[]) and status = 0 and attempt = 0 order by id for update skip locked
)
update relevo.job j set friendly = s.friendly
from free f join unnest($1::uuid[], $2::text[]) as s (id, friendly) on s.id = f.id
where j.id = f.id and j.friendly is distinct from s.friendly;

-- name: end_series
-- Removes waiting rows of series that have no further instant, and writes events.
with gone as (
  delete from relevo.job where id = any ($1::uuid[]) and status = 10 and attempt = 0 returning series
)
select array_agg(series) from gone;

-- name: announce_series_ends
-- Writes events for series that have ended.
select relevo.announce_series_ends($1::uuid[]);

-- name: read_jobs
-- Jobs by id, whatever their state.
select * from relevo.jobs_by_id($1::uuid[]);

-- name: read_job_page
-- Jobs by id in a given order, with or without their data, up to a number of bytes (PostgreSQL knows the length of a text
-- without reading it). `followed` is whether more follow.
select j.* from (
  select j.*, coalesce(sum(coalesce(octet_length(j.data), 0) + coalesce(octet_length(j.saved), 0)
    + coalesce(octet_length(j.result), 0) + coalesce(octet_length(j.message), 0) + coalesce(octet_length(j.friendly), 0)) over before, 0)
    as bytes_before, lead(true) over before as followed
  from (
    select w.place, j.id, j.name, j.handler, j.lane, j.status, j.sequence, j.version, j.operation_type, j.priority, j.token, j.owner,
      j.created_at, j.modified_at, j.started_at, j.completed_at, j.postpone_until, j.attempt, j.retries, j.crashes, j.run_seconds,
      j.progress, j.error_code, j.friendly, j.host_name, j.series, j.pattern, j.chained, case when $2 then j.message end as message,
      case when $2 then j.data end as data, case when $2 then j.saved end as saved, case when $2 then j.result end as result
    from unnest($1::uuid[]) with ordinality as w (id, place) join relevo.jobs_by_id($1::uuid[]) j on j.id = w.id
  ) j
  window before as (order by j.place rows between unbounded preceding and 1 preceding)
) j
where j.bytes_before < $3::bigint order by j.place;

-- name: awaited
-- Unfinished jobs by id, and whether success leaves no record of them.
select id, auto_delete and not retain as brief from relevo.jobs_by_id($1::uuid[]) where status < 30;

-- name: ends
-- Which of some jobs have ended or are gone, and why; not jobs whose transaction is under way. A job without a record and
-- without `gone` has succeeded: it existed (`brief`, `handler`), and success leaves no record of it.
select w.id, h.status, h.result, h.error_code, h.friendly, h.message,
  case
    when h.id is not null then null
    when exists (select from relevo.job j where j.id = w.id) then 'deleted'  -- its handler is still to stop
    when pg_xact_status(split_part(w.tx, ' ', 2)::xid8) = 'aborted' then 'undone'
    when coalesce(w.brief, d.auto_delete) then null
    when coalesce(w.brief::text, w.handler) is not null then 'deleted'
    else 'missing'
  end as gone
from unnest($1::uuid[], $2::boolean[], $3::text[], $4::text[]) as w (id, brief, handler, tx)
left join relevo.job_history h on h.id = w.id
left join relevo.job_handler d on d.name = w.handler
where not relevo.is_live(w.id) and (w.tx is null
  or pg_visible_in_snapshot(split_part(w.tx, ' ', 1)::xid8, pg_current_snapshot()));

-- name: declare_lanes
-- Stores the configuration of lanes; the next claims apply a changed cap.
select relevo.declare_job_lanes($1::text[], $2::text[], $3::boolean[], $4::integer[], $5::boolean[]);

-- name: declare_handlers
-- Stores the handlers of a host; repeated while it serves them.
insert into relevo.job_handler (name, lane, operation_type, auto_delete, crashes_max, priority)
select * from unnest($1::text[], $2::text[], $3::integer[], $4::boolean[], $5::integer[], $6::smallint[])
on conflict (name) do update set lane = excluded.lane, operation_type = excluded.operation_type,
  auto_delete = excluded.auto_delete, crashes_max = excluded.crashes_max, priority = excluded.priority, served_at = relevo.now();

-- name: declare_served
-- Stores what a host serves: lanes with slots, pool and limit, and the lane of each handler.
insert into relevo.job_server (host, lane, handlers, slots, pool, limit_name)
select h.incarnation, l.lane, array(select g.name from unnest($6::text[], $7::text[]) as g (lane, name) where g.lane = l.lane),
  l.slots, l.pool, l.limit_name
from unnest($2::text[], $3::integer[], $4::text[], $5::text[]) as l (lane, slots, pool, limit_name)
join relevo.host h on h.incarnation = $1
on conflict do nothing;

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

-- name: recurrence_of
-- The recurrence of a job.
select id, series, pattern, anchor, zone, nominal, details, token from relevo.job where id = $1;

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

-- name: chain_heads
-- The jobs that others of their chain wait for: the open one, or the oldest if none is open.
select * from (
  select j.id, coalesce(
    (select h.id from relevo.job h where h.chain = j.chain and not h.chained),
    (select h.id from relevo.job h where h.chain = j.chain order by h.sequence limit 1)) as head
  from relevo.job j where j.id = any ($1::uuid[]) and j.chained
) b where b.head <> b.id;

-- name: chain_of
-- The chain that a live job waits in, null if it is in none; no row if there is no such job.
select chain from relevo.jobs_by_id(array[$1::uuid]) where status < 30;

-- name: lock_head
-- The job that another of a chain waits for, to be taken out of it; the chain is locked.
select h.id, h.status, h.host_name from relevo.job h
where h.id = (
  select coalesce(
    (select o.id from relevo.job o where o.chain = $2 and not o.chained),
    (select o.id from relevo.job o where o.chain = $2 order by o.sequence limit 1))
  from relevo.job j where j.id = $1 and j.chain = $2 and j.chained
) and h.id <> $1
for update;

-- name: leave_chain
-- Takes a job out of its chain: from now on it runs apart from the others of its token.
update relevo.job set chain = null, chained = false, friendly = concat_ws('; ', friendly, $2::text), version = version + 1,
  modified_at = relevo.now(), modified_by = coalesce($3, modified_by) where id = $1;

-- name: open_locked_gates
-- Opens gates that this transaction has locked; after the statement that freed them.
select relevo.open_job_gates($1::text[]);

-- name: announce_unblocked
-- Writes the event that others no longer wait for a job.
select relevo.announce_jobs(array[id], array[version], array['unblocked'], array[status], array[status], array[name], array[lane],
  array[operation_type], array[attempt], array[host_name], array[error_code], array[created_at], array[started_at])
from relevo.job where id = $1;

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

-- name: unpack_ready
-- Turns about $2 waiting jobs of a handler in parcels into rows.
select relevo.unpack_ready(array[$1::text], $2);

-- name: unpack_unserved
-- The same for handlers that no host has served for $1.
select relevo.unpack_unserved($1::interval, $2);

-- name: jobs_of_extension
-- Some jobs of an extension that have not started, with their gates.
select id, chain, lane, owner from relevo.job where extension = $1 and status in (0, 10) and not deleted order by id limit $2;

-- name: deactivate_jobs
-- Cancels jobs whose extension was deactivated.
select id from relevo.move_jobs($1::uuid[], array_fill('deactivate'::text, array[cardinality($1::uuid[])]), keys => $2::text[]);

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

-- name: served_lane
-- The lane in which hosts have recently served a handler.
select lane from relevo.job_handler where name = $1 and served_at > relevo.now() - $2::interval;

-- name: lanes
-- All lanes.
select name, events, priority, owner_cap from relevo.job_lane order by name;

-- name: may_read
-- Whether the role of this session may read: one that may only submit must not be asked for more.
select pg_catalog.has_table_privilege('relevo.job_lane'::regclass, 'select');

-- name: situation
-- A job with its lane, its handler, its brake and its user, for an explanation; without its data.
select j.id, j.name, j.handler, j.lane, j.status, j.attempt, j.retries, j.crashes, j.postpone_until, j.waiting_event, j.chained,
  j.capped, j.alone, j.series, j.chain, j.token, j.owner, j.host_name, j.started_at, j.modified_at, j.completed_at, j.error_code,
  j.friendly, j.rank, j.sequence, relevo.now() as now, l.owner_cap, h.served_at, b.until as braked_until, u.name as user_name,
  (select count(*) from relevo.host x where x.ended_at is null and x.lease_until > relevo.now()) as hosts,
  case when j.capped then (
    select count(*) from relevo.job o where o.lane = j.lane and o.owner = j.owner and not o.capped and o.status <> 10) end as admitted
from relevo.jobs_by_id(array[$1::uuid]) j
join relevo.job_lane l on l.name = j.lane
left join relevo.job_handler h on h.name = j.handler
left join lateral (
  select max(x.until) as until from relevo.job_brake x where j.handler = any (x.handlers) and x.probe is distinct from j.id
) b on true
left join relevo.system_user u on u.id = j.modified_by;

-- name: servers_of
-- The live hosts that serve a handler, in which lane, and how many jobs they hold there.
select x.name as host, s.lane, s.slots, s.pool, s.limit_name, s.handlers, x.draining, coalesce((
    select count(*) from relevo.job j where j.host = s.host and j.lane = s.lane), 0) + coalesce((
    select sum(p.size - cardinality(p.done)) from relevo.job_parcel p where p.host = s.host and s.lane = any (p.lanes)), 0) as held
from relevo.job_server s join relevo.host x on x.incarnation = s.host
where x.ended_at is null and x.lease_until > relevo.now() and $1 = any (s.handlers)
order by x.name limit 1000;

-- name: jobs_ahead
-- How many claimable jobs of some handlers come before a place, at most $4.
select least($4::bigint, (
  select count(*) from (
    select from unnest($1::text[]) as h cross join lateral (
      select from relevo.job j
      where j.handler = h and j.status = 0 and not j.chained and not j.capped and not j.alone
        and (j.rank, j.sequence) < ($2::bigint, $3::bigint)
      order by j.rank, j.sequence limit $4) c
    limit $4) a
) + coalesce((
  select sum(c.jobs) from unnest($1::text[]) as h cross join lateral (
    select case when p.rank < $2 then p.size - cardinality(p.done)
      else (select count(*) from unnest(p.ids, p.sequences) as u (id, place) where u.place < $3 and u.id <> all (p.done)) end as jobs
    from relevo.job_parcel p
    where p.host is null and p.handler = h and (p.rank, p.sequence) < ($2, $3)
    order by p.rank, p.sequence limit $4) c
), 0))::bigint;

-- name: waits_of
-- What a suspended job waits for: events, or other jobs that have not ended. Some of them.
select w.event, w.key, w.child, w.deadline from relevo.job_wait w
where w.job = $1 and not w.woken and w.came_at is null and (w.child is null or relevo.is_live(w.child))
order by w.step desc, w.part limit 100;

-- name: handler_names
-- A handler by name, if a host has had it; else the names of those that hosts have had, to find similar ones.
select name from relevo.job_handler where name = $1
union all
(select name from relevo.job_handler where not exists (select from relevo.job_handler where name = $1)
 order by served_at desc limit 10000);

-- name: unserved_handlers
-- Handlers for which jobs are ready and which no live host serves, with the time when a host last did; null: never.
with recursive kinds as (
  (select handler from relevo.job where status = 0 and not chained and not capped order by handler limit 1)
  union all
  select n.handler from kinds k cross join lateral (
    select j.handler from relevo.job j
    where j.status = 0 and not j.chained and not j.capped and j.handler > k.handler order by j.handler limit 1) n
)
select k.handler, h.served_at from (
  select handler from kinds union select handler from relevo.job_parcel where host is null
) k left join relevo.job_handler h on h.name = k.handler
where not exists (
  select from relevo.job_server s join relevo.host x on x.incarnation = s.host
  where x.ended_at is null and x.lease_until > relevo.now() and k.handler = any (s.handlers))
order by k.handler limit $1;
