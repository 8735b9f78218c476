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
-- The batches that hold the next events after a position in each of some stripes, by LSN; they may hold more. A stripe whose
-- position was trimmed away answers a row without a batch, first of all.
with asked as (
  select p.stripe, p.lsn as after, s.trimmed_lsn
  from unnest($1::integer[], $2::bigint[]) as p (stripe, lsn)
  join relevo.event_stripe s on s.id = p.stripe
), next as (
  select e.stripe, max(e.last) as last
  from (
    select a.stripe, n.last
    from asked a
    cross join lateral (
      select b.last, l.lsn
      from relevo.event_batch b cross join lateral unnest(b.lsns) as l (lsn)
      where b.stripe = a.stripe and b.last > a.after and l.lsn > a.after and a.after >= a.trimmed_lsn
      order by b.last limit $3) n
    order by n.lsn limit $3) e
  group by e.stripe
)
select a.stripe, a.after, a.trimmed_lsn, b.last, b.at, b.lsns, b.types, b.schemas, b.subjects, b.versions, b.data
from asked a
left join next n on n.stripe = a.stripe
left join lateral (
  select * from relevo.event_batch b
  where b.stripe = a.stripe and b.last > a.after and b.last <= n.last) b on true
where b.last is not null or a.after < a.trimmed_lsn
order by b.last nulls first;

-- name: heads
-- The highest visible LSN of every stripe: "now". Safe without locks, since nothing arrives late.
select s.id, greatest(s.trimmed_lsn, (select max(b.last) from relevo.event_batch b where b.stripe = s.id)) as lsn
from relevo.event_stripe s;

-- name: positions_at
-- For every stripe the position behind which everything younger than an instant lies.
select s.id, greatest(s.trimmed_lsn, coalesce(
  (select min(b.lsns[1]) - 1 from relevo.event_batch b
   where b.stripe = s.id and b.at > $1
     and b.last > coalesce((select t.lsn from relevo.event_time t where t.at <= $1 order by t.at desc limit 1), 0)),
  (select max(b.last) from relevo.event_batch b where b.stripe = s.id))) as lsn
from relevo.event_stripe s;

-- name: poll_events
-- Which waiting leases have something to read, or to be refused: one statement for all of a host.
select p.n, p.range_id, head.lsn, false as sealed
from unnest($1::integer[], $2::integer[], $3::bigint[]) as p (n, range_id, lsn)
join relevo.event_stripe s on s.id = p.range_id
cross join lateral (select max(b.last) as lsn from relevo.event_batch b where b.stripe = p.range_id) head
where head.lsn > p.lsn or p.lsn < s.trimmed_lsn;

-- name: make_partition
-- Sees to it that there is a partition for the day so many days from now.
select relevo.make_event_partition(relevo.now() + $1::integer * interval '24 hours');

-- name: mark_time
-- Notes how far the log has come by now.
select relevo.mark_event_time();

-- name: trim
-- Refuses positions that are older than the log is kept, from now on.
select relevo.trim_events();

-- name: drop_trimmed
-- Drops partitions that were trimmed longer ago than any statement lasts.
select relevo.drop_trimmed_events();

-- name: keep
-- Changes how long events are kept.
update relevo.event_log set kept = $1;
