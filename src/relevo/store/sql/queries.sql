-- name: find_container
-- A container and all its ranges, sealed ones too; a row per range.
select c.id, c.name, c.incarnation, c.partition_key, c.default_ttl, c.retention, c.previous_images, c.created_at,
       f.id as range_id, f.epk_min, f.epk_max, f.parents, f.sealed_lsn
from relevo.container c join relevo.feed_range f on f.container_id = c.id
where c.name = $1
order by f.id;

-- name: create_container
-- Creates a container and its first ranges, unless another process was faster.
with made as (
  insert into relevo.container (name, partition_key, default_ttl, retention, previous_images, versions_since)
  values ($1, $2::text[], $3, $4::interval, $5, case when $4::interval is not null then 0 end)
  on conflict (name) do nothing
  returning id
)
insert into relevo.feed_range (container_id, epk_min, epk_max)
select made.id, r.low, r.high from made cross join unnest($6::text[], $7::text[]) with ordinality as r (low, high, n)
order by r.n;

-- name: list_containers
-- Containers by name, a page at a time.
select id, name, incarnation, partition_key, default_ttl, retention, previous_images, created_at
from relevo.container
where name > $1
order by name limit $2;

-- name: lock_ranges
-- Takes the stamp locks of ranges; whether all of them are open.
select relevo.lock_ranges($1::integer[]);

-- name: split_range
-- Seals a range above its last LSN and adds its two children; its stamp lock is held.
with sealed as (
  update relevo.feed_range set sealed_lsn = nextval('relevo.lsn')
  where id = $1
  returning id, container_id, epk_min, epk_max
)
insert into relevo.feed_range (container_id, epk_min, epk_max, parents)
select s.container_id, part.low, part.high, array[s.id]
from sealed s cross join lateral (values (1, s.epk_min, $2), (2, $2, s.epk_max)) as part (n, low, high)
order by part.n
returning id;

-- name: busy_ranges
-- Open ranges that got at least so many items since a while, and in nearly every second of it.
-- Counting stops there. An item that is written over and over counts once: it cannot be spread.
select c.name as container, f.id as range_id
from relevo.feed_range f
join relevo.container c on c.id = f.container_id
cross join lateral (
  select min(t.lsn) as lsn, count(*) as seconds from relevo.feed_time t
  where t.range_id = f.id and t.at >= relevo.now() - make_interval(secs => $1)
) since
where f.sealed_lsn is null and since.seconds >= 0.9 * $1 and $2 <= (
  select count(*) from (
    select from relevo.item i where i.range_id = f.id and i.lsn >= since.lsn limit $2) i)
order by f.id;

-- name: open_ranges
-- The ranges of a container that take writes.
select id from relevo.feed_range where container_id = $1 and sealed_lsn is null order by id;

-- name: drop_container
-- Deletes a container at once and leaves its items to housekeeping; its stamp locks are held.
with gone as (
  insert into relevo.dropped_container (id, ranges)
  select $1, array(select f.id from relevo.feed_range f where f.container_id = $1)
)
delete from relevo.container where id = $1;

-- name: write_items
-- Writes a group of calls in one go; see the function.
select outcome, written_lsn as lsn, written_ordinal as ordinal, written_ts as ts
from relevo.write_items($1, $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::integer[],
                        $8::text[], $9::text[], $10::integer[], $11::bigint, $12::integer);

-- name: read_items
-- The items under some keys, in their order; no row at all means that the container is gone.
select i.body, i.lsn, i.ordinal, i.ts
from relevo.container c
cross join unnest($2::text[], $3::text[]) with ordinality as k (pk, id, n)
left join relevo.item i on i.container_id = c.id and i.pk = k.pk and i.id = k.id
  and (i.expires_at is null or i.expires_at > (select relevo.now()))
where c.id = $1
order by k.n;

-- name: put_rows
-- Writes items in the caller's transaction, which stamps them when it commits; see the function.
-- path: any
select outcome, 0::pg_catalog.int8 as lsn, written_ordinal as ordinal, written_ts as ts
from relevo.put_rows($1, $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[],
  $6::pg_catalog.text[], $7::pg_catalog.text[], $8::pg_catalog.int4[]);

-- name: stamp_writes
-- Stamps the writes of the transaction, a row per range; the commit follows.
select stamped_range as range_id, stamped_lsn as lsn, stamped_ts as ts from relevo.stamp_writes();

-- name: wait_for_locks
-- For the rest of a transaction that waits for items: how long, in milliseconds, and that the client
-- must not stay idle in it.
select relevo.stay_awake(), set_config('lock_timeout', $1, true);

-- name: try_lock_items
-- The items of a batch as they are, expired ones too; locked, unless another transaction holds them.
-- Only those that the batch reads or patches come with their bodies.
select k.id, case when k.id = any ($4::text[]) then i.body end as body, i.lsn, i.ordinal, i.ts, relevo.stay_awake(),
       i.id is not null and (i.expires_at is null or i.expires_at > relevo.now()) as live,
       i.id is null and exists (select from relevo.item x
                                where x.container_id = $1 and x.pk = $2 and x.id = k.id) as busy
from unnest($3::text[]) as k (id)
left join lateral (
  select * from relevo.item i where i.container_id = $1 and i.pk = $2 and i.id = k.id
  for update skip locked) i on true;

-- name: lock_items
-- The same for a batch that waits for other transactions; items that do not exist have no row.
select i.id, case when i.id = any ($4::text[]) then i.body end as body, i.lsn, i.ordinal, i.ts,
       i.expires_at is null or i.expires_at > relevo.now() as live
from relevo.lock_items($1, $2, $3::text[]) i;

-- name: query_by_key
-- Items by partition key and id; query.py puts conditions in the place of (true).
select i.pk, i.id, i.epk, i.body, i.lsn, i.ordinal, i.ts
from relevo.container c join relevo.item i on i.container_id = c.id
where c.id = $1 and (i.expires_at is null or i.expires_at > (select relevo.now())) and (true)
order by i.pk, i.id limit $2;

-- name: query_by_time
-- Items by the time of their last write; query.py puts conditions in the place of (true).
select i.pk, i.id, i.epk, i.body, i.lsn, i.ordinal, i.ts
from relevo.container c join relevo.item i on i.container_id = c.id
where c.id = $1 and (i.expires_at is null or i.expires_at > (select relevo.now())) and (true)
order by i.ts, i.pk, i.id limit $2;

-- name: container_exists
-- Whether a container is still there.
select exists (select from relevo.container where id = $1);

-- name: expired_items
-- Whether an item has expired.
select exists (select from relevo.item i where i.expires_at <= relevo.now()) as due;

-- name: dropped_containers
-- Whether a dropped container may have left items.
select exists (select from relevo.dropped_container) as due;

-- name: lock_expired
-- Some expired items, locked, with the range that gets their delete, if any.
select i.container_id, i.pk, i.id, f.id as range_id
from relevo.item i
join relevo.container c on c.id = i.container_id
left join relevo.feed_range f on c.retention is not null and f.container_id = i.container_id
  and f.sealed_lsn is null and i.epk >= f.epk_min and i.epk < f.epk_max
where i.expires_at <= relevo.now()
order by i.expires_at limit $1
for update of i skip locked;

-- name: purge_items
-- Removes expired items and records each end as a change of its own; stamp locks are held. Time
-- never runs back inside a range.
with given as (
  select * from unnest($1::integer[], $2::text[], $3::text[], $4::integer[]) as g (container_id, pk, id, range_id)
), stamp as (
  select greatest(relevo.now(), max(t.last)) as ts from given g
  cross join lateral (select max(at) as last from relevo.feed_time where range_id = g.range_id) t
), gone as (
  delete from relevo.item i using given g
  where i.container_id = g.container_id and i.pk = g.pk and i.id = g.id
  returning i.container_id, g.range_id, i.lsn, i.pk, i.id, i.epk, i.body
), logged as (
  insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts, operation,
                                   ttl_expired, pk, id, epk, previous)
  select g.container_id, g.range_id, 1, nextval('relevo.lsn'), g.lsn, stamp.ts, 'delete', true,
         g.pk, g.id, g.epk, case when c.previous_images then g.body end
  from gone g join relevo.container c on c.id = g.container_id cross join stamp
  where g.range_id is not null
  returning container_id, range_id, lsn, ts
), timed as (
  insert into relevo.feed_time (range_id, at, lsn)
  select range_id, date_trunc('second', ts), min(lsn) from logged group by 1, 2
  on conflict (range_id, at) do nothing
)
select (select count(*) from gone) as purged,
       array(select distinct container_id from logged) as changed;

-- name: purge_dropped_items
-- Removes some items of dropped containers; ordered, to avoid a scan of the table.
with gone as (
  delete from relevo.item where ctid = any (array(
    select i.ctid from relevo.dropped_container d
    cross join lateral (select ctid from relevo.item where container_id = d.id order by pk, id limit $1) i
    limit $1))
  returning 1
)
select count(*) from gone;

-- name: purge_dropped_versions
-- Removes some versions of items of dropped containers.
with gone as (
  delete from relevo.item_version where ctid = any (array(
    select v.ctid from relevo.dropped_container d
    cross join lateral unnest(d.ranges) as r (id)
    cross join lateral (
      select ctid from relevo.item_version where range_id = r.id order by lsn, ordinal limit $1) v
    limit $1))
  returning 1
)
select count(*) from gone;

-- name: forget_dropped
-- Removes dropped containers that have no items left; not at once, since a transaction that wrote an item
-- before the drop may commit after it.
delete from relevo.dropped_container d
where d.dropped_at < relevo.now() - interval '1 day'
  and (select 1 from relevo.item i where i.container_id = d.id order by i.pk, i.id limit 1) is null
  and (select max(v.one) from unnest(d.ranges) as r (id) cross join lateral (
         select 1 as one from relevo.item_version where range_id = r.id order by lsn, ordinal limit 1) v) is null;
