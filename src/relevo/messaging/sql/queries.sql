-- name: accept
-- Accepts messages that were evaluated with versions of entities; see the function.
select * from relevo.accept_messages($1::integer[], $2::bigint[], $3::integer[], $4::text[], $5::bytea[], $6::smallint[],
  $7::timestamptz[], $8::integer[], $9::integer[], $10::smallint[], $11::smallint[], $12::smallint[], $13::integer[],
  $14::float8[], $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[],
  $22::bigint[], $23::integer[]);

-- name: arrivals
-- Takes the oldest arrivals that need evaluation, or all that are there if hosts are to accept plain ones, too.
delete from relevo.message_arrival a using (
  select o.id from relevo.message_arrival o order by o.id limit $1 for update skip locked) o
where a.id = o.id
returning a.*;

-- name: receive
-- Claims messages for a receiver; see the function.
select * from relevo.receive_messages($1::text[], $2::smallint[], $3, $4, $5);

-- name: settle
-- Settles messages by their locks; see the function.
select relevo.settle_messages($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::float8[], $6::text[], $7::text[],
  $8::bytea[], $9);

-- name: places
-- The numbers and states of entities, by their keys.
select id, key, path, kind, status, has_sessions, lock_seconds from relevo.message_entity where key = any ($1::text[]);

-- name: tend
-- Which of the duties have anything to do; an idle installation costs one statement.
select
  exists (select from relevo.message where state in (4, 5) and visible_at <= relevo.now()) as due,
  exists (select from relevo.message where state in (0, 5, 6) and expires_at <= relevo.now()) as expired,
  exists (select from relevo.message where locked_until <= relevo.now())
    or exists (select from relevo.message m where m.host is not null
      and not exists (select from relevo.host h where h.incarnation = m.host and h.ended_at is null)) as lost,
  exists (select from relevo.message_delta) as counts,
  exists (select from relevo.message_arrival) as arrivals;

-- name: make_due
-- Makes messages claimable whose time has come; returns their entities.
select relevo.make_messages_due($1);

-- name: expire
-- Removes or dead-letters messages whose time is over; returns how many.
select relevo.expire_messages($1);

-- name: recover
-- Takes messages back from ended hosts and expired locks; returns their entities.
select relevo.recover_messages($1);

-- name: fold_counts
-- Adds differences of counters up.
select relevo.fold_message_counts();

-- name: forget
-- Forgets ids, settlements, tenants and sessions that are over.
select relevo.forget_messages($1);

-- name: peek
-- Messages of an entity or sub-queue in the order of their arrival, without locks; arrivals come last.
select m.sequence, m.entity_id, m.sub_queue, m.class, k.name as class_name, m.state, m.priority, m.body_kind, m.delivery_count,
  m.preempt_count, m.enqueued_at, m.expires_at, m.visible_at, coalesce(m.locked_until, h.lease_until) as locked_until,
  m.enqueued_sequence, m.message_id, m.fairness_key, m.head, m.body, m.checkpoint, m.dead
from relevo.message m
join relevo.message_class k on k.entity_id = m.entity_id and k.number = m.class
left join relevo.host h on h.incarnation = m.host
where m.entity_id = $1 and m.sub_queue = $2 and m.sequence > $3 order by m.sequence limit $4;

-- name: peek_arrivals
-- Messages that callers' transactions have sent to an entity and nobody has accepted yet.
select a.id, a.priority, a.priority_class, a.body_kind, a.at, a.due_at, a.message_id, a.fairness_key, a.head, a.body
from relevo.message_arrival a where a.entity_id = $1 order by a.id limit $2;

-- name: counts
-- Counters of an entity by sub-queue and class, folded or not.
select c.sub_queue, c.class, k.name, sum(c.active)::bigint as active, sum(c.locked)::bigint as locked,
  sum(c.deferred)::bigint as deferred, sum(c.scheduled)::bigint as scheduled, sum(c.bytes)::bigint as bytes, sum(c.sent)::bigint as sent,
  sum(c.delivered)::bigint as delivered, sum(c.completed)::bigint as completed, sum(c.abandoned)::bigint as abandoned,
  sum(c.lock_lost)::bigint as lock_lost, sum(c.dead_lettered)::bigint as dead_lettered, sum(c.expired)::bigint as expired,
  sum(c.preempted)::bigint as preempted, sum(c.in_target)::bigint as in_target, sum(c.out_of_target)::bigint as out_of_target,
  sum(c.floor_claims)::bigint as floor_claims, sum(c.unrouted)::bigint as unrouted, sum(c.filter_errors)::bigint as filter_errors
from (select * from relevo.message_count where entity_id = $1 union all select * from relevo.message_delta where entity_id = $1) c
left join relevo.message_class k on k.entity_id = c.entity_id and k.number = c.class
group by c.sub_queue, c.class, k.name order by c.sub_queue, c.class;

-- name: oldest
-- How many seconds the oldest claimable message of each class has waited, of the next hundred.
select k.number, k.name, extract(epoch from relevo.now() - (select min(o.enqueued_at) from (
  select m.enqueued_at from relevo.message m where m.entity_id = $1 and m.sub_queue = 0 and m.class = k.number and m.state = 0
  order by m.rank, m.sequence limit 100) o))::float8 as age
from relevo.message_class k where k.entity_id = $1;
