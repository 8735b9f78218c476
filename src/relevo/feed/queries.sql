-- name: read_latest
-- The next changes of a range in latest-version mode: each item once, at its newest LSN. The log of
-- a range after a split is that of its ancestors within its interval, then its own.
select i.lsn, i.ordinal, i.ts, i.pk, i.id, i.range_id, i.body
from unnest($1::integer[]) as r (id)
cross join lateral (
  select * from relevo.item i
  where i.range_id = r.id and i.lsn > $2 and i.epk >= $3 and i.epk < $4
    and (i.expires_at is null or i.expires_at > relevo.now())
  order by i.lsn, i.ordinal limit $5
) i
order by i.lsn, i.ordinal limit $5;

-- name: read_latest_rest
-- What is left of a group that a page's limit cut through.
select i.lsn, i.ordinal, i.ts, i.pk, i.id, i.range_id, i.body
from relevo.item i
where i.range_id = any ($1::integer[]) and i.lsn = $2 and i.ordinal > $5
  and i.epk >= $3 and i.epk < $4 and (i.expires_at is null or i.expires_at > relevo.now())
order by i.ordinal;

-- name: read_versions
-- The next changes of a range with all versions and deletes.
select i.lsn, i.ordinal, i.ts, i.pk, i.id, i.range_id, i.body, i.previous, i.operation,
       i.previous_lsn, i.ttl_expired
from unnest($1::integer[]) as r (id)
cross join lateral (
  select * from relevo.item_version i
  where i.range_id = r.id and i.lsn > $2 and i.epk >= $3 and i.epk < $4
  order by i.lsn, i.ordinal limit $5
) i
order by i.lsn, i.ordinal limit $5;

-- name: read_versions_rest
-- What is left of a group that a page's limit cut through.
select i.lsn, i.ordinal, i.ts, i.pk, i.id, i.range_id, i.body, i.previous, i.operation,
       i.previous_lsn, i.ttl_expired
from relevo.item_version i
where i.range_id = any ($1::integer[]) and i.lsn = $2 and i.ordinal > $5
  and i.epk >= $3 and i.epk < $4
order by i.ordinal;

-- name: heads
-- The highest visible LSN of each log: "now". Safe without locks, since nothing arrives late (F1).
select r.id,
  greatest(
    (select max(i.lsn) from unnest(r.lineage) l (id)
     cross join lateral (select max(lsn) as lsn from relevo.item where range_id = l.id) i),
    (select max(i.lsn) from unnest(r.lineage) l (id)
     cross join lateral (select max(lsn) as lsn from relevo.item_version where range_id = l.id) i),
    0) as lsn
from (select id, string_to_array(lineage, ',')::integer[] as lineage
      from unnest($1::integer[], $2::text[]) as given (id, lineage)) r;

-- name: position_at
-- The highest visible LSN of a log that is not younger than an instant: everything after it is.
select coalesce(max(i.lsn), 0) as lsn
from unnest($1::integer[]) as r (id)
cross join lateral (
  select greatest(
    (select max(lsn) from relevo.item i
     where i.range_id = r.id and i.ts <= $2
       and i.lsn < coalesce((select min(t.lsn) from relevo.feed_time t
                             where t.range_id = r.id and t.at > $2), 9223372036854775807)
       and i.lsn >= coalesce((select max(t.lsn) from relevo.feed_time t
                              where t.range_id = r.id and t.at <= date_trunc('second', $2)), 0)),
    (select max(lsn) from relevo.item_version i
     where i.range_id = r.id and i.ts <= $2
       and i.lsn < coalesce((select min(t.lsn) from relevo.feed_time t
                             where t.range_id = r.id and t.at > $2), 9223372036854775807)
       and i.lsn >= coalesce((select max(t.lsn) from relevo.feed_time t
                              where t.range_id = r.id and t.at <= date_trunc('second', $2)), 0)),
    (select max(t.lsn) - 1 from relevo.feed_time t
     where t.range_id = r.id and t.at <= date_trunc('second', $2))) as lsn
) i;

-- name: container_state
-- What a reader checks its position against.
select c.id, c.incarnation, c.retention is not null as versions, c.versions_since,
       (select last_value from relevo.lsn) as last_lsn
from relevo.container c where c.name = $1;

-- name: list_ranges
-- Every range of a container, sealed ones too.
select id, epk_min, epk_max, parents, sealed_lsn, trimmed_lsn
from relevo.feed_range where container_id = $1 order by id;

-- name: find_feed_unit
-- What the first instance of a unit decided for all.
select container_id, container_incarnation, mode, start, settings, generation
from relevo.feed_unit where unit_id = $1;

-- name: insert_feed_unit
-- Makes a unit; the lock on the unit is held.
insert into relevo.feed_unit (unit_id, container_id, container_incarnation, mode, start, settings)
values ($1, $2, $3, $4, $5, $6);

-- name: insert_feed_leases
-- All leases of a new unit with their intervals and resolved positions, at once.
with made as (
  insert into relevo.lease (unit_id, name, position)
  select $1, l.low || '-' || l.high, l.position::jsonb
  from unnest($2::text[], $3::text[], $4::text[]) as l (low, high, position)
  returning id, name
)
insert into relevo.feed_lease (lease_id, epk_min, epk_max)
select made.id, l.low, l.high
from unnest($2::text[], $3::text[]) as l (low, high) join made on made.name = l.low || '-' || l.high;

-- name: feed_leases
-- The leases of a unit, in the order of the hash space.
select l.id, l.name, l.position, l.owner, l.epoch, l.state, h.name as owner_name,
       f.epk_min, f.epk_max, f.checkpoint_at, f.position_ts, f.attempts, f.failing
from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id
left join relevo.host h on h.incarnation = l.owner
where l.unit_id = $1 order by f.epk_min;

-- name: feed_lease
-- What a worker needs to begin; trouble that belongs to another position is over.
select f.epk_min, f.epk_max, f.attempts, f.failing, f.crashes, l.position,
       case when f.isolation -> 'at' = l.position then f.isolation - 'at' end as isolation
from relevo.feed_lease f join relevo.lease l on l.id = f.lease_id where f.lease_id = $1;

-- name: note_failure
-- Counts a failed call, so that whoever owns the lease next goes on counting.
update relevo.feed_lease f set attempts = $4, failing = $5,
  failing_since = coalesce(f.failing_since, relevo.now()),
  isolation = $6::jsonb || jsonb_build_object('at', l.position)
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
returning f.lease_id;

-- name: checkpoint
-- Moves a lease's position in the name of its owner, and clears what failures left behind; a batch
-- that is through only in part keeps its trouble, and with it the count of crashes.
with moved as (
  update relevo.lease l set position = $4::jsonb
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id
)
update relevo.feed_lease f set checkpoint_at = relevo.now(), position_ts = coalesce($5, f.position_ts),
  attempts = 0, failing = null, failing_since = null,
  isolation = $6::jsonb || jsonb_build_object('at', $4::jsonb),
  crashes = case when $6::jsonb is null then 0 else f.crashes end
from moved where f.lease_id = moved.id
returning f.lease_id;

-- name: count_pending
-- How many changes a lease has before it, counted on the index up to a bound, and the oldest one.
select count(*) as pending, min(i.ts) as oldest from unnest($1::integer[]) as r (id)
cross join lateral (
  select i.ts from relevo.item i
  where i.range_id = r.id and i.lsn > $2 and i.epk >= $3 and i.epk < $4
    and (i.expires_at is null or i.expires_at > relevo.now())
  order by i.lsn limit $5
) i;

-- name: poll_latest
-- Which waiting leases have something to read: one statement for all of a host.
select p.n, p.range_id, head.lsn, f.sealed_lsn is not null as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
join relevo.feed_range f on f.id = p.range_id
cross join lateral (select max(i.lsn) as lsn from relevo.item i where i.range_id = p.range_id) head
where head.lsn > p.lsn or f.sealed_lsn is not null;

-- name: poll_versions
-- The same for all versions and deletes.
select p.n, p.range_id, head.lsn, f.sealed_lsn is not null as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
join relevo.feed_range f on f.id = p.range_id
cross join lateral (select max(i.lsn) as lsn from relevo.item_version i where i.range_id = p.range_id) head
where head.lsn > p.lsn or f.sealed_lsn is not null;

-- name: find_unit_id
-- The unit of a processor, if it was ever started.
select id from relevo.unit where kind = 'feed' and name = $1;

-- name: now
-- The time by which lag is measured.
select relevo.now();

-- name: find_unit
-- The unit of a processor as operators see it.
select u.id, f.container_incarnation, f.mode, f.generation
from relevo.unit u join relevo.feed_unit f on f.unit_id = u.id
where u.kind = 'feed' and u.name = $1;

-- name: lock_unit
-- One operation at a time, and none beside a plan or a bootstrap.
select pg_advisory_xact_lock($1, $2), relevo.stay_awake();

-- name: lock_leases
-- Excludes the transactions that are fenced by these leases; comes before every change of epoch.
select relevo.lock_leases($1);

-- name: unit_leases
-- The leases of a unit; one runs until its owner let go of it, or has ended and its time has passed.
select l.id, l.name, l.position, l.epoch, l.state, l.owner, h.name as owner_name,
       f.epk_min, f.epk_max, f.checkpoint_at, f.position_ts, f.attempts, f.failing,
       l.owner is not null and (h.ended_at is null or h.lease_until > relevo.now()) as running
from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id
left join relevo.host h on h.incarnation = l.owner
where l.unit_id = $1 order by f.epk_min;

-- name: set_lease_states
-- Pauses or resumes leases; their owners learn it and let go.
update relevo.lease l set state = $2, free_since = case when l.owner is null then relevo.now() end
where l.id = any ($1::integer[]) returning l.owner;

-- name: rewind_leases
-- Sets positions and raises epochs, so that a batch under way cannot move them; lease locks are held.
update relevo.lease l set position = g.position::jsonb, epoch = l.epoch + 1
from unnest($1::integer[], $2::text[]) as g (id, position)
where l.id = g.id returning l.owner;

-- name: forget_failures
-- What failed before a rewind says nothing about what comes after it.
update relevo.feed_lease set checkpoint_at = null, position_ts = null, attempts = 0, failing = null,
  failing_since = null, isolation = null, crashes = 0, crash_position = null, crash_epoch = null
where lease_id = any ($1::integer[]);

-- name: raise_generation
-- Tells one life of a unit's positions from the next.
update relevo.feed_unit set generation = generation + 1 where unit_id = $1;

-- name: save_snapshot
-- Keeps where the unit stands under a name; the newest of that name counts.
insert into relevo.feed_snapshot (unit_id, name, generation, places) values ($1, $2, $3, $4)
on conflict (unit_id, name) do update set
  taken_at = excluded.taken_at, generation = excluded.generation, places = excluded.places
returning name, taken_at, generation;

-- name: list_snapshots
-- The snapshots of a unit, oldest first.
select name, taken_at, generation from relevo.feed_snapshot where unit_id = $1 order by taken_at, name;

-- name: find_snapshot
-- The places of one snapshot.
select places from relevo.feed_snapshot where unit_id = $1 and name = $2;

-- name: live_members
-- Hosts that serve a unit.
select h.name from relevo.member m join relevo.host h on h.incarnation = m.host
where m.unit_id = $1 and h.ended_at is null and h.lease_until > relevo.now() order by h.name;

-- name: delete_unit
-- Forgets a unit with its leases, positions and snapshots.
delete from relevo.unit where id = $1;

-- name: hold_host
-- Keeps a live host's row from being ended before this transaction is; rows of hosts come before
-- lease locks on every path.
select from relevo.host where incarnation = $1 and ended_at is null and lease_until > relevo.now()
for key share;

-- name: owned_lease
-- Whether a lease is still this owner's, and what its unit says about splits.
select l.state, coalesce((u.settings ->> 'follow_splits')::boolean, true) as follow
from relevo.lease l join relevo.feed_unit u on u.unit_id = l.unit_id
where l.id = $1 and l.epoch = $2 and l.owner = $3;

-- name: insert_child_leases
-- Puts leases beside the one they are about to replace: with its owner if one is given, its state
-- and everything the feed keeps with it, whatever columns that has.
with made as (
  insert into relevo.lease (unit_id, name, owner, epoch, position, state, free_since, moved_at, clean)
  select p.unit_id, c.low || '-' || c.high, $2, 1, c.position::jsonb, p.state,
         case when $2::uuid is null then coalesce(p.free_since, relevo.now()) end, p.moved_at,
         p.clean or $2::uuid is not null
  from relevo.lease p cross join unnest($3::text[], $4::text[], $5::text[]) as c (low, high, position)
  where p.id = $1
  returning id, name
)
insert into relevo.feed_lease
select (copied.lease).* from (
  select jsonb_populate_record(f, jsonb_build_object(
    'lease_id', made.id, 'epk_min', c.low, 'epk_max', c.high)) as lease
  from relevo.feed_lease f
  cross join unnest($3::text[], $4::text[]) as c (low, high)
  join made on made.name = c.low || '-' || c.high
  where f.lease_id = $1
) copied;

-- name: delete_lease
-- The lease whose place others have taken.
delete from relevo.lease where id = $1;

-- name: wake_host
-- Tells the owner's host at the commit to look at what it owns; splits are too rare for the price
-- that NOTIFY has in a transaction.
select pg_notify('relevo', E'sql\nhost:' || $1::uuid);

-- name: expired_versions
-- Up to which LSN each log of all versions is past its retention: seconds that are over wholly. The
-- log of a range that nobody has written since is expired up to its end.
select f.id, f.trimmed_lsn as before, v.lsn
from relevo.feed_range f
join relevo.container c on c.id = f.container_id and c.retention is not null
cross join lateral (
  select max(v.lsn) as lsn from relevo.item_version v
  where v.range_id = f.id and v.lsn < coalesce((
    select min(t.lsn) from relevo.feed_time t
    where t.range_id = f.id and t.at > relevo.now() - c.retention - interval '1 second'),
    9223372036854775807)
) v
where v.lsn > f.trimmed_lsn;

-- name: mark_trimmed
-- From here on a position below is refused; comes before the rows go.
update relevo.feed_range f set trimmed_lsn = g.lsn
from unnest($1::integer[], $2::bigint[]) as g (id, lsn)
where f.id = g.id and f.trimmed_lsn < g.lsn;

-- name: leases_behind
-- Owned leases that have not read all of what is about to go; the log of a range that was split is
-- the beginning of its children's.
with recursive trimmed as (
  select g.id, g.id as origin, g.before, g.lsn
  from unnest($1::integer[], $2::bigint[], $3::bigint[]) as g (id, before, lsn)
  union all
  select f.id, t.origin, t.before, t.lsn
  from trimmed t join relevo.feed_range f on t.id = any (f.parents)
)
select distinct l.id
from relevo.feed_unit u
join relevo.lease l on l.unit_id = u.unit_id and l.owner is not null
join relevo.feed_lease f on f.lease_id = l.id
cross join lateral jsonb_each_text(l.position) as p (range_id, lsn)
join trimmed t on t.id = p.range_id::integer and p.lsn::bigint >= t.before and p.lsn::bigint < t.lsn
where u.mode = 'all_versions' and exists (
  select from relevo.item_version v
  where v.range_id = t.origin and v.lsn > p.lsn::bigint and v.lsn <= t.lsn
    and v.epk >= f.epk_min and v.epk < f.epk_max)
order by l.id;

-- name: fence_leases
-- The owners begin anew with these leases, and find out that they stand too far back.
update relevo.lease set epoch = epoch + 1 where id = any ($1::integer[]) returning owner;

-- name: trim_versions
-- Removes some versions that no position may be before; no lock but those of the rows.
with gone as (
  delete from relevo.item_version where ctid = any (array(
    select v.ctid from relevo.feed_range f
    cross join lateral (select ctid from relevo.item_version
                        where range_id = f.id and lsn <= f.trimmed_lsn limit $1) v
    where f.trimmed_lsn > 0 limit $1))
  returning 1
)
select count(*) from gone;

-- name: item_table_size
-- What all items together are; below a range's bound there is nothing to look at closer.
select greatest(c.reltuples, 0)::bigint as items, pg_table_size(c.oid) as bytes
from pg_class c where c.oid = 'relevo.item'::regclass;

-- name: estimate_ranges
-- About how many items each open range holds.
select c.name as container, f.id, relevo.estimate_items(f.id) as items
from relevo.feed_range f join relevo.container c on c.id = f.container_id
where f.sealed_lsn is null;

-- name: note_loss
-- Counts, once per epoch, that the lease was lost without being released: at the same position as
-- the time before, or while a batch was in trouble. What was marked then is a suspect.
update relevo.feed_lease f set
  crashes = case when f.crash_epoch = $2 then f.crashes
                 when f.crash_position = l.position or f.isolation -> 'at' = l.position then f.crashes + 1
                 else 1 end,
  isolation = case when f.crash_epoch = $2 then f.isolation
                   else (f.isolation || jsonb_build_object('suspect', f.isolation -> 'marked')) - 'marked' end,
  crash_position = l.position, crash_epoch = $2
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
returning f.lease_id;

-- name: mark_call
-- Names the change that a call is about to be made with, in case that the process does not survive it.
update relevo.feed_lease f set isolation = $4::jsonb || jsonb_build_object('at', l.position)
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
returning f.lease_id;

-- name: block_lease
-- The owner gives up on a lease; an operator has to resume it.
update relevo.lease l set state = 'blocked'
where l.id = $1 and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
returning l.id;

-- name: pass_on
-- The owner asks another host that serves the unit to have the lease when it is released.
update relevo.lease l set handoff_to = other.host, handoff_until = relevo.now() + interval '10 seconds'
from (
  select m.host from relevo.member m join relevo.host h on h.incarnation = m.host
  where m.unit_id = (select unit_id from relevo.lease where id = $1)
    and m.host <> $3 and not m.draining and not h.draining
    and h.ended_at is null and h.lease_until > relevo.now()
    and (m.max_leases is null or m.max_leases > (
      select count(*) from relevo.lease o where o.unit_id = m.unit_id and o.owner = m.host))
  order by (select count(*) from relevo.lease o where o.unit_id = m.unit_id and o.owner = m.host)
  limit 1
) other
where l.id = $1 and l.epoch = $2 and l.owner = $3 and l.state = 'active' and l.handoff_to is null
returning l.id;

-- name: bury
-- Writes a dead letter and moves past it: both or neither, and only in the name of the owner (P9).
with moved as (
  update relevo.lease l set position = $4::jsonb, state = case when $7 then 'blocked' else l.state end
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id, l.unit_id, l.name
), cleared as (
  update relevo.feed_lease f set checkpoint_at = relevo.now(), position_ts = $5, attempts = 0,
    failing = null, failing_since = null,
    isolation = $6::jsonb || jsonb_build_object('at', $4::jsonb),
    crashes = case when $6::jsonb is null then 0 else f.crashes end
  from moved where f.lease_id = moved.id
)
insert into relevo.dead_letter as d (
  unit_id, token, incarnation, range_id, lsn, ordinal, ts, pk, item_id, operation, body, previous,
  previous_lsn, ttl_expired, reason, error_type, message, traceback, attempts, first_failed_at,
  last_failed_at, instance, handler)
select moved.unit_id, moved.name, $8, $9, $10, $11, $5, $12, $13, $14, $15::jsonb, $16::jsonb,
  $17, $18, $19, $20, $21, $22, $23, coalesce(f.failing_since, relevo.now()),
  relevo.now(), h.name, $24
from moved join relevo.feed_lease f on f.lease_id = moved.id join relevo.host h on h.incarnation = $3
on conflict (unit_id, range_id, lsn, ordinal) do update set
  token = excluded.token, reason = excluded.reason, error_type = excluded.error_type,
  message = excluded.message, traceback = excluded.traceback,
  attempts = excluded.attempts, last_failed_at = excluded.last_failed_at,
  instance = excluded.instance, handler = excluded.handler
returning d.*;

-- name: list_dead_letters
-- Dead letters of a unit, oldest first.
select * from relevo.dead_letter where unit_id = $1 and id > $2 order by id limit $3;

-- name: find_dead_letter
-- One dead letter.
select * from relevo.dead_letter where unit_id = $1 and id = $2;

-- name: claim_dead_letter
-- Only the oldest letter of a key can be had, by one at a time: so each key is redriven in order.
update relevo.dead_letter d set claimed_by = $3, claimed_until = relevo.now() + make_interval(secs => $4)
where d.unit_id = $1 and d.id = $2 and (d.claimed_until is null or d.claimed_until <= relevo.now())
  and not exists (select from relevo.dead_letter e where e.unit_id = d.unit_id and e.pk = d.pk
                  and (e.lsn, e.ordinal) < (d.lsn, d.ordinal))
returning d.id;

-- name: remove_dead_letter
-- The letter was delivered by the one who claimed it.
delete from relevo.dead_letter where id = $1 and claimed_by = $2 returning id;

-- name: return_dead_letter
-- The letter was not delivered; it stays.
update relevo.dead_letter set claimed_by = null, claimed_until = null, attempts = attempts + 1,
  error_type = $3, message = $4, traceback = $5, last_failed_at = relevo.now()
where id = $1 and claimed_by = $2 returning id;

-- name: discard_dead_letter
-- An operator decides that a letter is not needed.
delete from relevo.dead_letter where unit_id = $1 and id = $2
  and (claimed_until is null or claimed_until <= relevo.now()) returning id;

-- name: current_version
-- The item of a letter as it is now, if it still exists.
select i.range_id, i.lsn, i.ordinal, i.ts, i.body from relevo.item i
join relevo.container c on c.id = i.container_id
where c.incarnation = $1 and i.pk = $2 and i.id = $3
  and (i.expires_at is null or i.expires_at > relevo.now());

-- name: trimmed
-- Up to where the versions of a log are gone.
select coalesce(max(trimmed_lsn), 0) from relevo.feed_range where id = any ($1::integer[]);

-- name: stay_awake
-- Before a checkpoint in the user's transaction: a client that sleeps on the lease's row is ended.
select relevo.stay_awake();
