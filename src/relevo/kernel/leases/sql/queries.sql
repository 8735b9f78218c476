-- name: register_host
-- Begins the first life of a process; a second process with the same name wins, and the first one
-- learns it at its next statement. One statement, so that nobody holds a host's row and sleeps, and
-- it may be repeated when its outcome is not known.
with superseded as (
  update relevo.host set ended_at = relevo.now(), end_reason = 'superseded'
  where name = $2 and ended_at is null and incarnation <> $1
  returning incarnation
)
insert into relevo.host (incarnation, name, lease_until, started_at, address, labels, version)
select $1, $2, relevo.now() + make_interval(secs => $3), relevo.now(), $4, $5, $6
from (select count(*) from superseded) as first
on conflict (incarnation) do nothing;

-- name: register_again
-- Begins a new life after a lapse, unless a namesake lives: only a new process may supersede.
with ended as (
  update relevo.host set ended_at = relevo.now(), end_reason = 'lapsed'
  where name = $2 and ended_at is null and incarnation <> $1
    and (incarnation = $7 or lease_until <= relevo.now())
  returning incarnation
), registered as (
  insert into relevo.host (incarnation, name, lease_until, started_at, address, labels, version)
  select $1, $2, relevo.now() + make_interval(secs => $3), relevo.now(), $4, $5, $6
  from (select count(*) from ended) as first
  where not exists (select from relevo.host h where h.name = $2 and h.incarnation not in ($1, $7)
                    and h.ended_at is null and h.lease_until > relevo.now())
  on conflict (incarnation) do nothing
  returning incarnation
)
select incarnation from registered
union select incarnation from relevo.host where incarnation = $1 and ended_at is null;

-- name: heartbeat
-- Renews a host that is within its time and answers all it owns; no row means it has ended.
with renewed as (
  update relevo.host set lease_until = relevo.now() + make_interval(secs => $2)
  where incarnation = $1 and ended_at is null and lease_until > relevo.now()
  returning incarnation, draining
)
select r.draining, extract(epoch from clock_timestamp())::float8 as server_clock,
       l.id, l.epoch, l.state, l.handoff_to is not null as handoff,
       extract(epoch from l.handoff_until - relevo.now())::float8 as handoff_left
from renewed r left join relevo.lease l on l.owner = r.incarnation;

-- name: holdings
-- The leases of a live host, read between two heartbeats after a wake-up.
select h.draining, l.id, l.epoch, l.state, l.handoff_to is not null as handoff,
       extract(epoch from l.handoff_until - relevo.now())::float8 as handoff_left
from relevo.host h left join relevo.lease l on l.owner = h.incarnation
where h.incarnation = $1 and h.ended_at is null and h.lease_until > relevo.now();

-- name: end_reason
-- Why a renewal was refused: another host of that name lives, the row was changed, or time has passed.
select case
  when exists (select from relevo.host h where h.name = $2 and h.incarnation <> $1
               and h.ended_at is null and h.lease_until > relevo.now()) then 'superseded'
  else coalesce((select end_reason from relevo.host where incarnation = $1), 'lapsed') end;

-- name: mark_host_draining
-- A draining host has quota 0 everywhere.
update relevo.host set draining = true where incarnation = $1 and ended_at is null;

-- name: drain_host_by_name
-- An operator asks a host to hand over all it owns.
update relevo.host set draining = $2 where name = $1 and ended_at is null returning incarnation;

-- name: end_host
-- A host that has released everything ends at once, so that no host waits for its time to pass.
update relevo.host set ended_at = relevo.now(), end_reason = 'stopped', lease_until = relevo.now()
where incarnation = $1 and ended_at is null;

-- name: lapsed_hosts
-- In how many seconds a host lapses unless it renews; a lapse is due.
select extract(epoch from min(lease_until) - relevo.now())::float8 as seconds from relevo.host where ended_at is null;

-- name: forgettable_hosts
-- Whether an ended host is named by no lease.
select exists (select from relevo.host h where ended_at is not null
  and not exists (select from relevo.lease l where l.owner = h.incarnation)) as due;

-- name: end_lapsed_hosts
-- Makes a lapse stick; a renewal that waits for the row then finds it ended.
with lapsed as (
  select incarnation from relevo.host
  where ended_at is null and lease_until <= relevo.now()
  order by incarnation for update
)
update relevo.host h set ended_at = relevo.now(), end_reason = 'lapsed'
from lapsed where h.incarnation = lapsed.incarnation
returning h.incarnation, h.name;

-- name: forget_hosts
-- An ended host goes when no lease names it.
delete from relevo.host h where ended_at is not null
  and not exists (select from relevo.lease l where l.owner = h.incarnation);

-- name: stay_awake
-- First in a transaction that takes locks others wait for: the server ends a client that sleeps.
select relevo.stay_awake();

-- name: insert_unit
-- The first host that joins decides the unit's settings.
insert into relevo.unit (kind, name, strict, handoff_timeout, max_moves, rest, strategy)
values ($1, $2, $3, make_interval(secs => $4), $5, make_interval(secs => $6), $7)
on conflict (kind, name) do nothing;

-- name: find_unit
-- A unit and its settings.
select id, strict, extract(epoch from handoff_timeout)::float8 as handoff_timeout, max_moves,
       extract(epoch from rest)::float8 as rest, strategy
from relevo.unit where kind = $1 and name = $2;

-- name: insert_leases
-- Adds the leases that are missing; those that exist keep owner, epoch and position.
insert into relevo.lease (unit_id, name) select $1, unnest($2::text[])
on conflict (unit_id, name) do nothing;

-- name: insert_member
-- Counts a host in a unit, also while it owns nothing.
insert into relevo.member (unit_id, host, weight, min_leases, max_leases, address)
select $1, incarnation, $3, $4, $5, $6 from relevo.host
where incarnation = $2 and ended_at is null
on conflict (unit_id, host) do update set draining = false, weight = excluded.weight,
  min_leases = excluded.min_leases, max_leases = excluded.max_leases, address = excluded.address
returning unit_id;

-- name: drain_member
-- A host that leaves a unit has quota 0 in it.
update relevo.member set draining = true where unit_id = $1 and host = $2;

-- name: delete_member
-- A host that has left is no longer counted.
delete from relevo.member where unit_id = $1 and host = $2;

-- name: namesake_leases
-- The leases of earlier lives of this host's name, which it may take at once.
select l.id from relevo.lease l
join relevo.unit u on u.id = l.unit_id
join relevo.host h on h.incarnation = l.owner
where l.unit_id = $1 and h.name = $2 and h.incarnation <> $3 and l.state = 'active'
  and h.ended_at is not null and (not u.strict or h.lease_until <= relevo.now());

-- name: read_units
-- The read of a tick: members and leases of every unit this host serves, with times compared.
with t as materialized (select relevo.now() as now)
select u.id, u.kind, u.name, u.strict,
  extract(epoch from u.handoff_timeout)::float8 as handoff_timeout, u.max_moves,
  extract(epoch from u.rest)::float8 as rest, u.strategy,
  (select array_agg(row(
      h.incarnation, h.name, m.weight, m.min_leases, m.max_leases, m.draining or h.draining,
      h.ended_at is null and h.lease_until > t.now,
      extract(epoch from h.lease_until - t.now)::float8))
    from relevo.member m join relevo.host h on h.incarnation = m.host
    where m.unit_id = u.id) as members,
  (select array_agg(row(
      l.id, l.name, l.owner,
      l.owner is null or ((h.ended_at is not null or h.lease_until <= t.now)
                          and (not u.strict or h.lease_until <= t.now)),
      l.state, l.handoff_to, coalesce(l.handoff_until <= t.now, false),
      extract(epoch from t.now - greatest(coalesce(l.free_since, h.ended_at), joined.last))::float8,
      extract(epoch from t.now - l.moved_at)::float8,
      extract(epoch from h.lease_until - t.now)::float8,
      l.busy, case when l.avoid_until > t.now then l.avoid end))
    from relevo.lease l left join relevo.host h on h.incarnation = l.owner
    cross join (select max(joined_at) as last from relevo.member where unit_id = u.id) as joined
    where l.unit_id = u.id) as leases
from relevo.unit u cross join t
where case when $2::integer is null
  then u.id in (select unit_id from relevo.member where host = $1) else u.id = $2 end;

-- name: lock_unit
-- Lets one host create a part's data of a unit; the others find it.
select pg_advisory_xact_lock(1380273154, $1), relevo.stay_awake();

-- name: try_lock_unit
-- Only one plan is made at a time.
select pg_try_advisory_xact_lock(1380273154, $1), relevo.stay_awake();

-- name: lock_leases
-- Excludes the transactions that are fenced by these leases; comes before every change of epoch.
select relevo.lock_leases($1);

-- name: take_leases
-- Takes free leases: without an owner, or whose owner has ended and, if strict, whose time has passed.
update relevo.lease l set
  owner = $2, epoch = l.epoch + 1, free_since = null,
  handoff_to = null, handoff_until = null, clean = l.owner is null and l.clean,
  in_order_from = case when l.owner is null then l.in_order_from else l.epoch + 1 end
from relevo.unit u
where l.id = any ($1) and u.id = l.unit_id and l.state = 'active'
  and exists (select from relevo.host me where me.incarnation = $2
              and me.ended_at is null and me.lease_until > relevo.now())
  and (l.owner is null or exists (
    select from relevo.host h where h.incarnation = l.owner and h.ended_at is not null
      and (not u.strict or h.lease_until <= relevo.now())))
returning l.id, l.unit_id, l.name, l.epoch, l.position, l.clean, l.busy, l.changes_s, l.bytes_s;

-- name: seize_leases
-- Takes leases that a live owner did not hand over in time; never in a strict unit.
update relevo.lease l set
  owner = $2, epoch = l.epoch + 1, moved_at = relevo.now(), free_since = null,
  handoff_to = null, handoff_until = null, clean = false, in_order_from = l.epoch + 1
from relevo.unit u
where l.id = any ($1) and u.id = l.unit_id and l.state = 'active' and not u.strict
  and l.handoff_to = $2 and l.handoff_until <= relevo.now()
  and exists (select from relevo.host me where me.incarnation = $2
              and me.ended_at is null and me.lease_until > relevo.now())
returning l.id, l.unit_id, l.name, l.epoch, l.position, l.clean, l.busy, l.changes_s, l.bytes_s;

-- name: ask_leases
-- Asks owners to hand over leases; each finishes its current work first.
update relevo.lease l set handoff_to = $2, handoff_until = relevo.now() + u.handoff_timeout
from relevo.unit u
where l.id = any ($1) and u.id = l.unit_id and l.state = 'active'
  and l.owner is not null and l.owner <> $2 and l.handoff_to is null
returning l.owner;

-- name: clear_handoffs
-- Withdraws requests whose target is no longer there; the owner goes on without reload.
update relevo.lease l set handoff_to = null, handoff_until = null
where l.id = any ($1) and l.handoff_to is not null and not exists (
  select from relevo.member m join relevo.host h on h.incarnation = m.host
  where m.unit_id = l.unit_id and m.host = l.handoff_to and not m.draining and not h.draining
    and h.ended_at is null and h.lease_until > relevo.now())
returning l.owner;

-- name: give_up_leases
-- Releases a lease, or hands it to the named successor if that host is live.
update relevo.lease l set
  owner = n.successor, epoch = l.epoch + 1, moved_at = relevo.now(),
  free_since = case when n.successor is null then relevo.now() end,
  handoff_to = null, handoff_until = null,
  clean = g.clean, in_order_from = case when g.clean then l.in_order_from else l.epoch + 1 end,
  position = coalesce(g.position::jsonb, l.position)
from unnest($2::integer[], $3::bigint[], $4::text[], $5::boolean[]) as g (id, epoch, position, clean)
left join lateral (
  select h.incarnation as successor from relevo.lease held
  join relevo.member m on m.unit_id = held.unit_id and m.host = held.handoff_to and not m.draining
  join relevo.host h on h.incarnation = m.host and not h.draining
    and h.ended_at is null and h.lease_until > relevo.now()
  where held.id = g.id and held.state = 'active'
) n on true
where l.id = g.id and l.epoch = g.epoch and l.owner = $1
  and exists (select from relevo.host me where me.incarnation = $1
              and me.ended_at is null and me.lease_until > relevo.now())
returning l.id, l.unit_id, l.owner;

-- name: save_positions
-- The owner's checkpoint; carries its fence, and a host that has ended or lapsed writes nothing.
update relevo.lease l set position = s.position::jsonb
from unnest($2::integer[], $3::bigint[], $4::text[]) as s (id, epoch, position)
where l.id = s.id and l.epoch = s.epoch and l.owner = $1
  and exists (select from relevo.host h where h.incarnation = $1
              and h.ended_at is null and h.lease_until > relevo.now())
returning l.id;

-- name: save_loads
-- Stores the load of leases for their owner. A row that is being written at this moment
-- waits for the next time instead, so this statement never blocks.
with mine as materialized (
  select l.id from relevo.lease l
  join unnest($2::integer[], $3::bigint[]) as s (id, epoch) on l.id = s.id and l.epoch = s.epoch
  where l.owner = $1
  for no key update of l skip locked
)
update relevo.lease l set busy = s.busy, changes_s = s.changes_s, bytes_s = s.bytes_s
from unnest($2::integer[], $4::float8[], $5::float8[], $6::float8[]) as s (id, busy, changes_s, bytes_s)
join mine on mine.id = s.id
where l.id = s.id
returning l.id;

-- name: pass_on_failing
-- The owner lets another live host have a lease on which its work fails, and keeps away from it for
-- a while; nothing if there is no other, or while the lease still keeps away from one.
update relevo.lease l set
  avoid = $3, avoid_until = relevo.now() + make_interval(secs => $4),
  handoff_to = coalesce(l.handoff_to, other.host),
  handoff_until = coalesce(l.handoff_until, relevo.now() + u.handoff_timeout)
from relevo.unit u cross join lateral (
  select m.host from relevo.member m join relevo.host h on h.incarnation = m.host
  cross join lateral (select count(*) as n from relevo.lease o
                      where o.unit_id = u.id and o.owner = m.host) has
  where m.unit_id = u.id and m.host <> $3 and not m.draining and not h.draining
    and h.ended_at is null and h.lease_until > relevo.now()
    and (m.max_leases is null or m.max_leases > has.n)
  order by has.n, m.host limit 1
) other
where l.id = $1 and l.epoch = $2 and l.owner = $3 and l.state = 'active' and u.id = l.unit_id
  and (l.avoid_until is null or l.avoid_until <= relevo.now())
  and exists (select from relevo.host me where me.incarnation = $3
              and me.ended_at is null and me.lease_until > relevo.now())
returning l.handoff_to;

-- name: lease_state
-- The state of a lease that could not be changed.
select l.state from relevo.lease l join relevo.unit u on u.id = l.unit_id
where u.kind = $1 and u.name = $2 and l.name = $3;

-- name: read_leases
-- The data that a host needs to start leases it was handed.
select id, unit_id, name, epoch, position, clean, busy, changes_s, bytes_s from relevo.lease
where id = any ($1) and owner = $2;

-- name: stale_fences
-- Which of these fences are stale; the others hold until the transaction ends.
select stale_id, stale_epoch from relevo.stale_fences($1, $2);

-- name: set_lease_state
-- Pauses, blocks or resumes a lease; its owner learns it and lets go.
update relevo.lease l set state = $4,
  free_since = case when l.owner is null then relevo.now() end
from relevo.unit u
where u.id = l.unit_id and u.kind = $1 and u.name = $2 and l.name = $3
  and l.state = any ($5::text[])
returning l.id, l.owner, l.unit_id;

-- name: ask_move
-- An operator asks for one lease to go to a named host.
update relevo.lease l set handoff_to = h.incarnation, handoff_until = relevo.now() + u.handoff_timeout
from relevo.unit u, relevo.host h, relevo.member m
where u.kind = $1 and u.name = $2 and l.unit_id = u.id and l.name = $3
  and h.name = $4 and h.ended_at is null and h.lease_until > relevo.now()
  and m.unit_id = u.id and m.host = h.incarnation and not m.draining and not h.draining
  and l.owner is not null and l.owner <> h.incarnation
returning l.owner;

-- name: list_hosts
-- Hosts by name, newest life first; ended ones stay while a lease names them.
select h.incarnation, h.name, h.started_at, h.lease_until, h.ended_at, h.end_reason, h.draining,
       h.address, h.labels, h.version,
       h.ended_at is null and h.lease_until > relevo.now() as live,
       (select count(*) from relevo.lease l where l.owner = h.incarnation) as leases
from relevo.host h
where $1::text is null or (h.name, h.incarnation) > ($1, $2::uuid)
order by h.name, h.incarnation limit $3;

-- name: ended_lives
-- Which of these lives of hosts have ended for good: nothing acts for them any more. With the time.
select relevo.now() as now,
       array(select i from unnest($1::uuid[]) i
             left join relevo.host h on h.incarnation = i
             where h.incarnation is null
                or h.ended_at is not null and h.lease_until <= relevo.now()) as ended;

-- name: list_leases
-- Leases by unit and name, with their owners.
select u.kind, u.name as unit, l.id, l.name, h.name as owner, l.owner as owner_incarnation, l.epoch,
       l.position, l.state, t.name as handoff_to, l.handoff_until, l.free_since, l.moved_at, l.clean
from relevo.lease l join relevo.unit u on u.id = l.unit_id
left join relevo.host h on h.incarnation = l.owner
left join relevo.host t on t.incarnation = l.handoff_to
where ($1::text is null or u.kind = $1) and ($2::text is null or u.name = $2)
  and (u.kind, u.name, l.name) > ($3, $4, $5)
order by u.kind, u.name, l.name limit $6;

-- name: count_leases
-- How many leases are in which state, for the metrics.
select case when l.state <> 'active' then l.state when l.owner is null then 'free'
            when l.handoff_to is not null then 'moving' else 'owned' end as state, count(*) as leases
from relevo.lease l group by 1;

-- name: little_memory
-- So little that the next statement writes to a temporary file; for this transaction alone.
set local work_mem = '64kB';

-- name: take_disk_space
-- About a megabyte on the disk, which is free again at once; it fails where there is no room.
select count(*) from generate_series(1, 50000);

-- name: note_write
-- A row that is committed, and so flushed; a server that is read-only refuses it.
insert into relevo.write_probe (host, at) values ($1, relevo.now())
on conflict (host) do update set at = excluded.at;
