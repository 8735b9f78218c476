-- name: read_latest
-- The next changes of a range in latest-version mode: each item once, at its newest LSN. The log of
-- a range after a split is that of its ancestors within its interval, then its own. A filter takes
-- the place of (true); other changes come without a body, to be skipped.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body
from unnest($1::integer[]) as r (id)
cross join lateral (
  select * from relevo.item i
  where i.range_id = r.id and i.lsn > $2 and i.epk >= $3 and i.epk < $4
    and (i.expires_at is null or i.expires_at > relevo.now())
  order by i.lsn, i.ordinal limit $5
) i
order by i.lsn, i.ordinal limit $5;

-- name: read_latest_alone
-- The same for a range without ancestors, as most are: the index has the order already.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body
from relevo.item i
where i.range_id = ($1::integer[])[1] and i.lsn > $2 and i.epk >= $3 and i.epk < $4
  and (i.expires_at is null or i.expires_at > relevo.now())
order by i.lsn, i.ordinal limit $5;

-- name: read_latest_rest
-- The rest of a group that the limit of a page has cut.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body
from relevo.item i
where i.range_id = any ($1::integer[]) and i.lsn = $2 and i.ordinal > $5
  and i.epk >= $3 and i.epk < $4 and (i.expires_at is null or i.expires_at > relevo.now())
order by i.ordinal;

-- name: read_versions
-- The next changes of a range with all versions and deletes; changes that the filter leaves out come
-- without their operation.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body,
       case when (true) then i.previous end as previous,
       case when (true) then i.operation end as operation, i.previous_lsn, i.ttl_expired
from unnest($1::integer[]) as r (id)
cross join lateral (
  select * from relevo.item_version i
  where i.range_id = r.id and i.lsn > $2 and i.epk >= $3 and i.epk < $4
  order by i.lsn, i.ordinal limit $5
) i
order by i.lsn, i.ordinal limit $5;

-- name: read_versions_alone
-- The same for a range that has no ancestors.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body,
       case when (true) then i.previous end as previous,
       case when (true) then i.operation end as operation, i.previous_lsn, i.ttl_expired
from relevo.item_version i
where i.range_id = ($1::integer[])[1] and i.lsn > $2 and i.epk >= $3 and i.epk < $4
order by i.lsn, i.ordinal limit $5;

-- name: read_versions_rest
-- The rest of a group that the limit of a page has cut.
select i.lsn, i.ordinal, date_part('epoch', i.ts), i.pk, i.id, i.range_id, case when (true) then i.body end as body,
       case when (true) then i.previous end as previous,
       case when (true) then i.operation end as operation, i.previous_lsn, i.ttl_expired
from relevo.item_version i
where i.range_id = any ($1::integer[]) and i.lsn = $2 and i.ordinal > $5
  and i.epk >= $3 and i.epk < $4
order by i.ordinal;

-- name: heads
-- The highest visible LSN of each log: "now". Safe without locks, since nothing arrives late.
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
-- The bounds of a reader's position.
select c.id, c.incarnation, c.retention is not null as versions, c.versions_since,
       (select last_value from relevo.lsn) as last_lsn,
       coalesce((select s.value -> 'lost' from relevo.setting s where s.key = 'database'), '[]') as lost
from relevo.container c where c.name = $1;

-- name: last_lsn
-- The LSN that was given out last; no position can be ahead of it.
select last_value from relevo.lsn;

-- name: list_ranges
-- Every range of a container, sealed ones too.
select id, epk_min, epk_max, parents, sealed_lsn, trimmed_lsn
from relevo.feed_range where container_id = $1 order by id;

-- name: find_feed_unit
-- The options that the first host of a unit decided for all.
select container_id, container_incarnation, mode, start, settings, generation, hold_seconds, hold_bytes,
       block_keys
from relevo.feed_unit where unit_id = $1;

-- name: unit_exists
-- Whether a unit is still there; its lock is held, so it stays.
select from relevo.unit where id = $1;

-- name: set_policies
-- The host that joined last decides how long trimming waits for the unit, and whether dead letters block.
update relevo.feed_unit set hold_seconds = $2, hold_bytes = $3, block_keys = $4 where unit_id = $1;

-- name: find_until
-- Where the present run of a unit ends.
select until from relevo.feed_unit where unit_id = $1;

-- name: set_until
-- The host that joined last decides where the run ends; null is never.
update relevo.feed_unit set until = $2 where unit_id = $1;

-- name: insert_feed_unit
-- Creates a unit; the lock on the unit is held.
insert into relevo.feed_unit
  (unit_id, container_id, container_incarnation, mode, start, settings, hold_seconds, hold_bytes,
   block_keys)
values ($1, $2, $3, $4, $5::jsonb || jsonb_build_object('resolved_at', relevo.now()), $6, $7, $8, $9);

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
-- The leases of a unit, in the order of the hash space. A take-over that commits while its host ends leaves an owner that is none.
select l.id, l.name, relevo.lease_position(l.position, f.cleared) as position, l.owner, l.epoch, l.state,
       case when h.ended_at is null then h.name end as owner_name,
       f.epk_min, f.epk_max, f.checkpoint_at, f.position_ts, f.attempts, f.failing,
       f.properties, case when f.stalled_epoch = l.epoch then f.stalled_since end as stalled_since
from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id
left join relevo.host h on h.incarnation = l.owner
where l.unit_id = $1 order by f.epk_min;

-- name: feed_lease
-- The stored state of a lease for a new worker; trouble of another position is dropped.
select f.epk_min, f.epk_max, f.crashes, relevo.lease_position(l.position, f.cleared) as position,
       exists (select from relevo.feed_done d where d.lease_id = f.lease_id) as has_done,
       case when f.isolation -> 'at' = l.position then f.isolation - 'at' end as isolation
from relevo.feed_lease f join relevo.lease l on l.id = f.lease_id where f.lease_id = $1;

-- name: settle_lease
-- Waits until no other transaction writes on behalf of the owner:
-- the lock is that of fences, the row is what positions are written to.
with alone as materialized (select relevo.lock_leases(array[$1::integer]))
select l.id from alone cross join relevo.lease l
where l.id = $1 and l.epoch = $2 and l.owner = $3 for share of l;

-- name: note_failure
-- Counts a failed call; the next owner of the lease goes on counting.
update relevo.feed_lease f set attempts = $4, failing = $5,
  failing_since = coalesce(f.failing_since, relevo.now()), stalled_since = null,
  isolation = $6::jsonb || jsonb_build_object('at', l.position)
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
returning f.lease_id;

-- name: checkpoint
-- Moves a lease's position on behalf of its owner, and clears the notes of failures; a partly finished
-- batch keeps its trouble, and with it the count of crashes.
with moved as (
  update relevo.lease l set position = $4::jsonb
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id
)
update relevo.feed_lease f set checkpoint_at = relevo.now(), stalled_since = null, position_ts = coalesce($5, f.position_ts),
  attempts = 0, failing = null, failing_since = null,
  isolation = $6::jsonb || jsonb_build_object('at', $4::jsonb),
  crashes = case when $6::jsonb is null then 0 else f.crashes end
from moved where f.lease_id = moved.id
returning f.lease_id;

-- name: checkpoints
-- The same for several leases at once. It skips leases whose rows another transaction holds, which are then
-- stored alone: so this statement never waits. With $7 no caller waits for it, and it is flushed to disk a
-- moment later: a server crash before loses the position, and the changes come again.
with relaxed as materialized (
  select case when $7::boolean then set_config('synchronous_commit', 'off', true) else '' end as told
), mine as materialized (
  select l.id, s.position::jsonb as position, s.last, s.isolation::jsonb as isolation
  from unnest($1::integer[], $2::bigint[], $3::uuid[], $4::text[], $5::timestamptz[], $6::text[])
    as s (id, epoch, owner, position, last, isolation)
  join relevo.lease l on l.id = s.id and l.epoch = s.epoch and l.owner = s.owner
  join relevo.feed_lease f on f.lease_id = l.id
  where exists (select from relevo.host h where h.incarnation = s.owner
                and h.ended_at is null and h.lease_until > relevo.now())
    and (select told from relaxed) is not null
  for no key update of l, f skip locked
), moved as (
  update relevo.lease l set position = mine.position from mine where l.id = mine.id
)
update relevo.feed_lease f set checkpoint_at = relevo.now(), stalled_since = null, position_ts = coalesce(mine.last, f.position_ts),
  attempts = 0, failing = null, failing_since = null,
  isolation = mine.isolation || jsonb_build_object('at', mine.position),
  crashes = case when mine.isolation is null then 0 else f.crashes end
from mine where f.lease_id = mine.id
returning f.lease_id;

-- name: checkpoint_done
-- The same with changes that were finished above the position; removes those that it has passed.
with moved as (
  update relevo.lease l set position = $4::jsonb
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id
), passed as (
  delete from relevo.feed_done d using moved
  where d.lease_id = moved.id and d.lsn <= coalesce(($4::jsonb ->> d.range_id::text)::bigint, d.lsn)
), finished as (
  insert into relevo.feed_done (lease_id, range_id, lsn, ordinal)
  select moved.id, d.range_id, d.lsn, d.ordinal
  from moved cross join unnest($7::integer[], $8::bigint[], $9::integer[]) as d (range_id, lsn, ordinal)
  on conflict do nothing
)
update relevo.feed_lease f set checkpoint_at = relevo.now(), stalled_since = null, position_ts = coalesce($5, f.position_ts),
  attempts = case when $6::jsonb is null then 0 else f.attempts end,
  failing = case when $6::jsonb is not null then f.failing end,
  failing_since = case when $6::jsonb is not null then f.failing_since end,
  isolation = $6::jsonb || jsonb_build_object('at', $4::jsonb),
  crashes = case when $6::jsonb is null then 0 else f.crashes end
from moved where f.lease_id = moved.id
returning f.lease_id;

-- name: insert_done
-- Changes of a lease that the caller's transaction finishes; its fence was checked and holds to the end.
insert into relevo.feed_done (lease_id, range_id, lsn, ordinal)
select $1, d.range_id, d.lsn, d.ordinal
from unnest($2::integer[], $3::bigint[], $4::integer[]) as d (range_id, lsn, ordinal)
on conflict do nothing;

-- name: list_done
-- Changes that a lease has finished above its position.
select range_id, lsn, ordinal from relevo.feed_done where lease_id = $1;

-- name: forget_done
-- After a rewind everything behind the new position is delivered again.
delete from relevo.feed_done where lease_id = any ($1::integer[]);

-- name: copy_done
-- Copies the finished changes of a lease to those that replace it; a surplus is harmless.
insert into relevo.feed_done (lease_id, range_id, lsn, ordinal)
select l.id, d.range_id, d.lsn, d.ordinal
from relevo.feed_done d
join relevo.lease p on p.id = d.lease_id
join relevo.lease l on l.unit_id = p.unit_id and l.name = any ($2::text[])
where d.lease_id = $1;

-- name: still_there
-- Which changes of some groups are still in a log in latest-version mode, before they are tried again.
select i.lsn, i.ordinal from relevo.item i
where i.range_id = any ($1::integer[]) and i.lsn = any ($2::bigint[])
  and (i.expires_at is null or i.expires_at > relevo.now());

-- name: count_pending
-- How many changes leases have before them in some ranges, counted up to a bound each and as far as a
-- filter wants them, and the oldest one; changes finished above their positions are not pending.
select p.n, c.*
from unnest($1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[])
  as p (n, lease_id, lineage, lsn, low, high)
cross join lateral (
  select count(*) as looked_at, count(*) filter (where i.wanted) as pending,
         min(i.ts) filter (where i.wanted) as oldest, max(i.lsn) as upto
  from (
    select i.lsn, i.ts, (true) and not exists (
      select from relevo.feed_done d
      where d.lease_id = p.lease_id and d.lsn = i.lsn and d.ordinal = i.ordinal) as wanted
    from unnest(string_to_array(p.lineage, ',')::integer[]) as r (id)
    cross join lateral (
      select * from relevo.item i
      where i.range_id = r.id and i.lsn > p.lsn and i.epk >= p.low and i.epk < p.high
        and (i.expires_at is null or i.expires_at > relevo.now())
      order by i.lsn limit $7
    ) i
    order by i.lsn limit $7
  ) i
) c
where c.looked_at > 0;

-- name: count_versions
-- The same for all versions and deletes.
select p.n, c.*
from unnest($1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[])
  as p (n, lease_id, lineage, lsn, low, high)
cross join lateral (
  select count(*) as looked_at, count(*) filter (where i.wanted) as pending,
         min(i.ts) filter (where i.wanted) as oldest, max(i.lsn) as upto
  from (
    select i.lsn, i.ts, (true) and not exists (
      select from relevo.feed_done d
      where d.lease_id = p.lease_id and d.lsn = i.lsn and d.ordinal = i.ordinal) as wanted
    from unnest(string_to_array(p.lineage, ',')::integer[]) as r (id)
    cross join lateral (
      select * from relevo.item_version i
      where i.range_id = r.id and i.lsn > p.lsn and i.epk >= p.low and i.epk < p.high
      order by i.lsn limit $7
    ) i
    order by i.lsn limit $7
  ) i
) c
where c.looked_at > 0;

-- name: count_events
-- The same for stripes of the event log.
select p.n, c.*
from unnest($1::integer[], $2::integer[], $3::text[], $4::bigint[], $5::text[], $6::text[])
  as p (n, lease_id, stripe, lsn, low, high)
cross join lateral (
  select count(*) as looked_at, count(*) filter (where i.wanted) as pending,
         min(i.at) filter (where i.wanted) as oldest, max(i.lsn) as upto
  from (
    select l.lsn, b.at, not exists (
      select from relevo.feed_done d where d.lease_id = p.lease_id and d.lsn = l.lsn) as wanted
    from relevo.event_batch b cross join lateral unnest(b.lsns) as l (lsn)
    where b.stripe = p.stripe::integer and b.last > p.lsn and l.lsn > p.lsn
    order by b.last limit $7
  ) i
) c
where c.looked_at > 0;

-- name: poll_latest
-- Which waiting leases have something to read: one statement for all of a host. Where a range is gone,
-- since its container was dropped, the lease has to look, too.
select p.n, p.range_id, head.lsn, f.id is null or f.sealed_lsn is not null as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
left join relevo.feed_range f on f.id = p.range_id
cross join lateral (select max(i.lsn) as lsn from relevo.item i where i.range_id = p.range_id) head
where head.lsn > p.lsn or f.id is null or f.sealed_lsn is not null;

-- name: poll_versions
-- The same for all versions and deletes.
select p.n, p.range_id, head.lsn, f.id is null or f.sealed_lsn is not null as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
left join relevo.feed_range f on f.id = p.range_id
cross join lateral (select max(i.lsn) as lsn from relevo.item_version i where i.range_id = p.range_id) head
where head.lsn > p.lsn or f.id is null or f.sealed_lsn is not null;

-- name: find_unit_id
-- The unit of a processor, if it was ever started.
select id from relevo.unit where kind = 'feed' and name = $1;

-- name: all_units
-- The units of containers that are there, and of the event log.
select u.name as unit, coalesce(c.name, $2) as container
from relevo.unit u
join relevo.feed_unit f on f.unit_id = u.id
left join relevo.container c on c.incarnation = f.container_incarnation
where u.kind = 'feed' and (c.id is not null or f.mode = 'events')
order by u.name limit $1;

-- name: now
-- The time by which lag is measured.
select relevo.now();

-- name: find_unit
-- The unit of a processor as operators see it.
select u.id, f.container_incarnation, f.mode, f.generation, f.settings
from relevo.unit u join relevo.feed_unit f on f.unit_id = u.id
where u.kind = 'feed' and u.name = $1;

-- name: lock_unit
-- One operation at a time, and none beside a plan or a bootstrap.
select pg_advisory_xact_lock(1380273154, $1), relevo.stay_awake();

-- name: lock_leases
-- Excludes the transactions that are fenced by these leases; comes before every change of epoch.
select relevo.lock_leases($1);

-- name: unit_leases
-- The leases of a unit; one runs until its owner has released it, or has ended and its time has passed.
select l.id, l.name, relevo.lease_position(l.position, f.cleared) as position, l.epoch, l.state, l.owner, h.name as owner_name,
       f.epk_min, f.epk_max, f.checkpoint_at, f.position_ts, f.attempts, f.failing,
       f.properties,
       l.owner is not null and (h.ended_at is null or h.lease_until > relevo.now()) as running
from relevo.lease l join relevo.feed_lease f on f.lease_id = l.id
left join relevo.host h on h.incarnation = l.owner
where l.unit_id = $1 order by f.epk_min;

-- name: set_lease_states
-- Pauses or resumes leases; their owners notice and release them.
update relevo.lease l set state = $2, free_since = case when l.owner is null then relevo.now() end
where l.id = any ($1::integer[]) returning l.owner;

-- name: set_properties
-- Stores users' data with a lease.
update relevo.feed_lease set properties = $2 where lease_id = $1;

-- name: rewind_leases
-- Sets positions and raises epochs, so that a batch under way cannot move them; lease locks are held.
update relevo.lease l set position = g.position::jsonb, epoch = l.epoch + 1
from unnest($1::integer[], $2::text[]) as g (id, position)
where l.id = g.id returning l.owner;

-- name: forget_failures
-- Clears the notes of failures before a rewind.
update relevo.feed_lease set checkpoint_at = null, position_ts = null, attempts = 0, failing = null,
  failing_since = null, isolation = null, crashes = 0, crash_position = null, crash_epoch = null, cleared = '{}'
where lease_id = any ($1::integer[]);

-- name: raise_generation
-- Increments the generation of a unit's positions.
update relevo.feed_unit set generation = generation + 1 where unit_id = $1;

-- name: save_snapshot
-- Stores the position of the unit under a name, in place of an older one.
insert into relevo.feed_snapshot (unit_id, name, generation, places) values ($1, $2, $3, $4)
on conflict (unit_id, name) do update set
  taken_at = excluded.taken_at, generation = excluded.generation, places = excluded.places
returning name, taken_at, generation;

-- name: list_snapshots
-- The snapshots of a unit, oldest first.
select name, taken_at, generation from relevo.feed_snapshot where unit_id = $1 order by taken_at, name;

-- name: find_snapshots
-- The snapshots of a name, alone or behind the name of their processor, that units over one life of
-- a container have, with the filter that their positions belong to.
select s.unit_id, u.name as unit, s.places, nullif(f.settings -> 'filter', 'null') as filter
from relevo.feed_snapshot s
join relevo.feed_unit f on f.unit_id = s.unit_id
join relevo.unit u on u.id = s.unit_id
where f.container_incarnation = $1 and f.mode = $2
  and (s.name = $3 or right(u.name || '/' || s.name, length($3) + 1) = '/' || $3)
order by u.name;

-- name: live_members
-- Hosts that serve a unit.
select h.name from relevo.member m join relevo.host h on h.incarnation = m.host
where m.unit_id = $1 and h.ended_at is null and h.lease_until > relevo.now() order by h.name;

-- name: forget_memory_units
-- Removes units of leases in memory that no host has served for an hour: their process was killed.
delete from relevo.unit u
where u.kind = 'feed' and starts_with(u.name, $1)
  and not exists (select from relevo.member m join relevo.host h on h.incarnation = m.host
                  where m.unit_id = u.id and h.ended_at is null)
  and not exists (
    select from relevo.lease l left join relevo.host h on h.incarnation = l.owner
    where l.unit_id = u.id and coalesce(l.free_since, h.ended_at, relevo.now()) > relevo.now() - interval '1 hour');

-- name: note_stall
-- Records that a call of this owner stalls.
update relevo.feed_lease f
set stalled_since = relevo.now() - make_interval(secs => $4), stalled_epoch = l.epoch
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2 and l.owner = $3
returning f.lease_id;

-- name: delete_unit
-- Deletes a unit with its leases, positions and snapshots.
delete from relevo.unit where id = $1;

-- name: hold_host
-- Keeps a live host's row from being ended before this transaction is; rows of hosts come before
-- lease locks on every path.
select from relevo.host where incarnation = $1 and ended_at is null and lease_until > relevo.now()
for key share;

-- name: owned_lease
-- Whether a lease is still this owner's, and whether its unit follows splits.
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
-- Deletes a lease that others have replaced.
delete from relevo.lease where id = $1;

-- name: wake_host
-- Wakes the owner's host at the commit; splits are too rare for the price
-- that NOTIFY has in a transaction.
select pg_notify('relevo', E'sql\nhost:' || $1::uuid);

-- name: keeps_versions
-- Whether any container keeps all versions, or a log that was trimmed may have rows left.
select exists (select from relevo.container where retention is not null)
  or exists (select from relevo.feed_range f where f.trimmed_lsn > 0) as due;

-- name: lock_trimming
-- Lets one transaction at a time decide what is trimmed: another could take rows that this one has removed for read ones.
select pg_advisory_xact_lock(1380273163, 0);

-- name: expired_versions
-- Up to which LSN each log of all versions is past its retention. Seconds tell about where that is,
-- as far as they are kept; the log of a range without later writes is expired to its end.
select f.container_id, f.id, f.trimmed_lsn as before, v.lsn
from relevo.feed_range f
join relevo.container c on c.id = f.container_id and c.retention is not null
cross join lateral (
  select max(v.lsn) as lsn from relevo.item_version v
  where v.range_id = f.id and v.ts < relevo.now() - c.retention and v.lsn < coalesce((
    select min(t.lsn) from relevo.feed_time t
    where t.range_id = f.id and t.at > relevo.now() - c.retention - interval '1 second'),
    9223372036854775807)
) v
where v.lsn > f.trimmed_lsn;

-- name: mark_trimmed
-- Refuses positions below from now on; before the rows are removed.
update relevo.feed_range f set trimmed_lsn = g.lsn
from unnest($1::integer[], $2::bigint[]) as g (id, lsn)
where f.id = g.id and f.trimmed_lsn < g.lsn;

-- name: versions_leases
-- Where leases stand that read all versions of some containers, and how long trimming waits for them.
select l.id, l.owner, u.container_id, u.hold_seconds, u.hold_bytes, f.epk_min, f.epk_max,
       relevo.lease_position(l.position, f.cleared) as position
from relevo.feed_unit u
join relevo.lease l on l.unit_id = u.unit_id
join relevo.feed_lease f on f.lease_id = l.id
where u.mode = 'all_versions' and u.container_id = any ($1::integer[])
order by l.id;

-- name: first_unread
-- The first version of a log that a position has before it in an interval, up to an end.
select (
  select min(v.lsn) from relevo.item_version v
  where v.range_id = g.id and v.lsn > g.position and v.lsn <= g.upto and v.epk >= g.low and v.epk < g.high
) as lsn
from unnest($1::integer[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
  with ordinality as g (id, position, upto, low, high, n)
order by g.n;

-- name: hold_floor
-- Up to where a log is trimmed although a unit still needs it: rows past their retention by more than
-- the given seconds, or beyond the given bytes.
select greatest(
  (select max(v.lsn) from relevo.item_version v
   join relevo.container c on c.id = v.container_id
   where v.range_id = $1 and v.lsn > $2 and v.lsn <= $3
     and v.ts < relevo.now() - c.retention - make_interval(secs => $4)),
  (select max(h.lsn) from (
     select v.lsn, sum(pg_column_size(v.*)) over (order by v.lsn desc, v.ordinal desc) as bytes
     from relevo.item_version v where v.range_id = $1 and v.lsn > $2 and v.lsn <= $3) h
   where h.bytes > $5::bigint));

-- name: clear_leases
-- Nothing unread of these leases lies up to here, so that trimming that far does not concern them.
update relevo.feed_lease f set cleared = f.cleared || g.cleared
from (select g.id, jsonb_object_agg(g.range_id, g.lsn) as cleared
      from unnest($1::integer[], $2::text[], $3::bigint[]) as g (id, range_id, lsn) group by g.id) g
where f.lease_id = g.id;

-- name: fence_leases
-- Makes the owners start again with these leases, and find that their position was trimmed.
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

-- name: timed_ranges
-- Ranges that have more to tell about time than is worth keeping.
select distinct t.range_id from relevo.feed_time t where t.at < relevo.now() - interval '1 day';

-- name: thin_times
-- Removes some of the times of a range: after a day all but the first of each minute, after a month
-- all but the first of each hour.
with gone as (
  delete from relevo.feed_time t using (
    select t.at from relevo.feed_time t
    where t.range_id = $1 and t.at < relevo.now() - interval '1 day' and exists (
      select from relevo.feed_time e
      where e.range_id = $1 and e.at < t.at and e.at >= date_trunc(
        case when t.at < relevo.now() - interval '30 days' then 'hour' else 'minute' end, t.at))
    limit $2) old
  where t.range_id = $1 and t.at = old.at
  returning 1
)
select count(*) from gone;

-- name: item_table_size
-- About how many items there are in all; below the bound of a range no further check is needed.
select greatest(c.reltuples, 0)::bigint as items, pg_table_size(c.oid) as bytes
from pg_class c where c.oid = 'relevo.item'::regclass;

-- name: estimate_ranges
-- About how many items each open range holds.
select c.name as container, f.id, relevo.estimate_items(f.id) as items
from relevo.feed_range f join relevo.container c on c.id = f.container_id
where f.sealed_lsn is null;

-- name: note_loss
-- Counts, once per epoch, that the lease was lost without a release: at the same position as the time
-- before, or while a batch was in trouble. The change that was marked then is the suspect.
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
-- Marks the change of the next call, in case the process does not survive it.
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
-- Writes dead letters and moves past them: both or neither, and only on behalf of the owner.
with moved as (
  update relevo.lease l set position = $4::jsonb, state = case when $7 then 'blocked' else l.state end
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id, l.unit_id, l.name
), passed as (
  delete from relevo.feed_done d using moved
  where d.lease_id = moved.id and d.lsn <= coalesce(($4::jsonb ->> d.range_id::text)::bigint, d.lsn)
), finished as (
  insert into relevo.feed_done (lease_id, range_id, lsn, ordinal)
  select moved.id, d.range_id, d.lsn, d.ordinal
  from moved cross join unnest($8::integer[], $9::bigint[], $10::integer[]) as d (range_id, lsn, ordinal)
  on conflict do nothing
), cleared as (
  update relevo.feed_lease f set checkpoint_at = relevo.now(), stalled_since = null, position_ts = $5, attempts = 0,
    failing = null, failing_since = null,
    isolation = $6::jsonb || jsonb_build_object('at', $4::jsonb),
    crashes = case when $6::jsonb is null then 0 else f.crashes end
  from moved where f.lease_id = moved.id
)
insert into relevo.dead_letter as d (
  unit_id, token, incarnation, range_id, lsn, ordinal, ts, pk, item_id, operation, body, previous,
  previous_lsn, ttl_expired, reason, error_type, message, traceback, attempts, first_failed_at,
  last_failed_at, instance, handler, blocks)
select moved.unit_id, moved.name, $11, c.origin, c.lsn, c.ordinal, c.ts, c.pk, c.id, c.operation,
  c.body::jsonb, c.previous::jsonb, c.previous_lsn, c.ttl_expired, $23, $24, $25, $26, $27,
  coalesce(f.failing_since, relevo.now()), relevo.now(), h.name, $28,
  (select u.block_keys from relevo.feed_unit u where u.unit_id = moved.unit_id)
from moved join relevo.feed_lease f on f.lease_id = moved.id join relevo.host h on h.incarnation = $3
cross join unnest($12::bigint[], $13::integer[], $14::timestamptz[], $15::integer[], $16::text[],
  $17::text[], $18::text[], $19::text[], $20::text[], $21::bigint[], $22::boolean[])
  as c (lsn, ordinal, ts, origin, pk, id, operation, body, previous, previous_lsn, ttl_expired)
on conflict (unit_id, range_id, lsn, ordinal) do update set
  token = excluded.token, reason = excluded.reason, error_type = excluded.error_type,
  message = excluded.message, traceback = excluded.traceback,
  attempts = excluded.attempts, last_failed_at = excluded.last_failed_at,
  instance = excluded.instance, handler = excluded.handler, blocks = excluded.blocks
returning d.*;

-- name: list_dead_letters
-- Dead letters of a unit, oldest first.
select * from relevo.dead_letter where unit_id = $1 and id > $2 order by id limit $3;

-- name: find_dead_letter
-- One dead letter.
select * from relevo.dead_letter where unit_id = $1 and id = $2;

-- name: claim_dead_letter
-- Claims a dead letter; only the oldest of a key, and one claim at a time, so that keys are redriven in order.
update relevo.dead_letter d set claimed_by = $3, claimed_until = relevo.now() + make_interval(secs => $4)
where d.unit_id = $1 and d.id = $2 and (d.claimed_until is null or d.claimed_until <= relevo.now())
  and not exists (select from relevo.dead_letter e where e.unit_id = d.unit_id and e.pk = d.pk
                  and (e.lsn, e.ordinal) < (d.lsn, d.ordinal))
returning d.id;

-- name: remove_dead_letter
-- Removes a dead letter that was delivered under a claim.
delete from relevo.dead_letter where id = $1 and claimed_by = $2 returning id;

-- name: next_parked
-- The next change that was parked behind a removed dead letter.
select n.id from (
  select d.id, d.reason from relevo.dead_letter d
  where d.unit_id = $1 and d.pk = $2 and (d.lsn, d.ordinal) > ($3::bigint, $4::integer)
  order by d.lsn, d.ordinal limit 1) n
where n.reason = 'parked';

-- name: lock_letter_keys
-- Serialises parking behind dead letters of a key and removing them; always in the same order.
select pg_advisory_xact_lock(1380273168, k.number), relevo.stay_awake() from (
  select distinct hashtext($1::integer || '/' || k.pk) as number from unnest($2::text[]) as k (pk) order by 1) k;

-- name: blocked_keys
-- Keys for which the unit of a lease has a blocking dead letter.
select k.pk from relevo.lease l cross join unnest($2::text[]) as k (pk)
where l.id = $1 and exists (
  select from relevo.dead_letter d where d.unit_id = l.unit_id and d.pk = k.pk and d.blocks);

-- name: unit_of_owned_lease
-- The unit of a lease, if the lease is still this owner's; it stays so until the transaction ends.
select l.unit_id from relevo.lease l
where l.id = $1 and l.epoch = $2 and l.owner = $3
  and exists (select from relevo.host h where h.incarnation = $3
              and h.ended_at is null and h.lease_until > relevo.now())
for share of l;

-- name: park_changes
-- Parks changes behind a dead letter of their key; parked ones stay.
insert into relevo.dead_letter (
  unit_id, token, incarnation, range_id, lsn, ordinal, ts, pk, item_id, operation, body, previous,
  previous_lsn, ttl_expired, reason, error_type, message, traceback, attempts, first_failed_at,
  last_failed_at, instance, handler, blocks)
select $1, $2, $5, c.origin, c.lsn, c.ordinal, c.ts, c.pk, c.id, c.operation, c.body::jsonb,
  c.previous::jsonb, c.previous_lsn, c.ttl_expired, 'parked', 'Parked',
  'it waits behind an earlier change of its key', '', 0, relevo.now(), relevo.now(),
  (select h.name from relevo.host h where h.incarnation = $3), $4, true
from unnest($6::bigint[], $7::integer[], $8::timestamptz[], $9::integer[], $10::text[],
  $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::boolean[])
  as c (lsn, ordinal, ts, origin, pk, id, operation, body, previous, previous_lsn, ttl_expired)
on conflict (unit_id, range_id, lsn, ordinal) do nothing;

-- name: return_dead_letter
-- Returns a dead letter that was not delivered.
update relevo.dead_letter set claimed_by = null, claimed_until = null, attempts = attempts + 1,
  reason = case when reason = 'parked' then 'failed' else reason end,
  error_type = $3, message = $4, traceback = $5, last_failed_at = relevo.now()
where id = $1 and claimed_by = $2 returning id;

-- name: discard_dead_letter
-- Discards a dead letter.
delete from relevo.dead_letter where unit_id = $1 and id = $2
  and (claimed_until is null or claimed_until <= relevo.now()) returning id;

-- name: current_version
-- The item of a dead letter as it is now, if it still exists.
select i.range_id, i.lsn, i.ordinal, i.ts, i.body from relevo.item i
join relevo.container c on c.id = i.container_id
where c.incarnation = $1 and i.pk = $2 and i.id = $3
  and (i.expires_at is null or i.expires_at > relevo.now());

-- name: trimmed
-- Up to where the versions of a log are gone.
select coalesce(max(trimmed_lsn), 0) from relevo.feed_range where id = any ($1::integer[]);

-- name: stay_awake
-- Before a checkpoint in the user's transaction: PostgreSQL ends a client that idles on the lease's row.
-- path: any
select relevo.stay_awake();

-- name: feed_units
-- Units that read the feeds of containers that are there, by name; a page of them.
select u.name as unit, c.name as container, f.mode
from relevo.unit u
join relevo.feed_unit f on f.unit_id = u.id
join relevo.container c on c.id = f.container_id
where u.kind = 'feed' and u.name > $1
order by u.name limit $2;
