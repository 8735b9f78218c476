-- name: append
-- Appends events as the last statement of the caller's transaction; see the function.
select relevo.append_events($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::text[], $6::integer);

-- name: log_state
-- The bounds of a reader's positions, a row per stripe.
select l.incarnation, l.kept, l.trimmed_before, s.id, s.kind, s.trimmed_lsn,
       (select last_value from relevo.lsn) as last_lsn,
       coalesce((select x.value -> 'lost' from relevo.setting x where x.key = 'database'), '[]') as lost
from relevo.event_log l cross join relevo.event_stripe s
order by s.id;

-- name: read_events
-- The next events after a position in each of some stripes, by LSN. A stripe whose position was
-- trimmed away answers a row without an event, first of all.
select p.stripe, p.lsn as after, s.trimmed_lsn, e.lsn, e.at, e.type, e.schema, e.subject, e.version, e.data
from unnest($1::integer[], $2::bigint[]) as p (stripe, lsn)
join relevo.event_stripe s on s.id = p.stripe
left join lateral (
  select * from relevo.event e
  where e.stripe = p.stripe and e.lsn > p.lsn and p.lsn >= s.trimmed_lsn
  order by e.lsn limit $3
) e on true
where e.lsn is not null or p.lsn < s.trimmed_lsn
order by e.lsn nulls first limit $3;

-- name: heads
-- The highest visible LSN of every stripe: "now". Safe without locks, since nothing arrives late.
select s.id, greatest(s.trimmed_lsn, (select max(e.lsn) from relevo.event e where e.stripe = s.id)) as lsn
from relevo.event_stripe s;

-- name: positions_at
-- For every stripe the position behind which everything younger than an instant lies.
select s.id, greatest(s.trimmed_lsn, coalesce(
  (select min(e.lsn) - 1 from relevo.event e
   where e.stripe = s.id and e.at > $1
     and e.lsn > (select min(t.lsn) from relevo.event_time t
                  where t.stripe = s.id and t.at >= date_trunc('minute', $1::timestamptz, 'UTC'))),
  (select max(e.lsn) from relevo.event e where e.stripe = s.id))) as lsn
from relevo.event_stripe s;

-- name: poll_events
-- Which waiting leases have something to read, or to be refused: one statement for all of a host.
select p.n, p.range_id, head.lsn, false as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
join relevo.event_stripe s on s.id = p.range_id
cross join lateral (select max(e.lsn) as lsn from relevo.event e where e.stripe = p.range_id) head
where head.lsn > p.lsn or p.lsn < s.trimmed_lsn;

-- name: make_partition
-- Sees to it that there is a partition for the day so many days from now.
select relevo.make_event_partition(relevo.now() + $1::integer * interval '24 hours');

-- name: trim
-- Refuses positions that are older than the log is kept, from now on.
select relevo.trim_events();

-- name: drop_trimmed
-- Drops partitions that were trimmed longer ago than any statement lasts.
select relevo.drop_trimmed_events();

-- name: keep
-- Changes how long events are kept.
update relevo.event_log set kept = $1;
