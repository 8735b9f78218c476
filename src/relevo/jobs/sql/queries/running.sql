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

-- name: unpack_ready
-- Turns about $2 waiting jobs of a handler in parcels into rows.
select relevo.unpack_ready(array[$1::text], $2);

-- name: unpack_unserved
-- The same for handlers that no host has served for $1.
select relevo.unpack_unserved($1::interval, $2);

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

-- name: jobs_due
-- In how many seconds a host has anything to do for jobs; see the function.
select relevo.jobs_due($1::uuid, $2::text[], $3::boolean) as seconds;
