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
-- What a worker needs to begin.
select f.epk_min, f.epk_max, f.attempts, l.position
from relevo.feed_lease f join relevo.lease l on l.id = f.lease_id where f.lease_id = $1;

-- name: note_failure
-- Counts a failed batch, so that whoever owns the lease next goes on counting.
update relevo.feed_lease f set attempts = f.attempts + 1, failing = $3
from relevo.lease l where f.lease_id = $1 and l.id = f.lease_id and l.epoch = $2
returning f.attempts;

-- name: checkpoint
-- Moves a lease's position in the name of its owner, and clears what failures left behind.
with moved as (
  update relevo.lease l set position = $4::jsonb
  where l.id = $1 and l.epoch = $2 and l.owner = $3
    and exists (select from relevo.host h where h.incarnation = $3
                and h.ended_at is null and h.lease_until > relevo.now())
  returning l.id
)
update relevo.feed_lease f set checkpoint_at = relevo.now(), position_ts = coalesce($5, f.position_ts),
  attempts = 0, failing = null
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
