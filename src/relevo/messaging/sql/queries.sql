-- name: accept
-- Accepts messages that were evaluated with versions of entities; see the function.
select * from relevo.accept_messages($1::integer[], $2::bigint[], $3::integer[], $4::text[], $5::bytea[], $6::smallint[],
  $7::timestamptz[], $8::integer[], $9::integer[], $10::smallint[], $11::smallint[], $12::smallint[], $13::integer[],
  $14::float8[], $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[],
  $22::bigint[], $23::integer[]);

-- name: accept_arrivals
-- The same for messages that have arrived before: no entity is too full for them.
select * from relevo.accept_messages($1::integer[], $2::bigint[], $3::integer[], $4::text[], $5::bytea[], $6::smallint[],
  $7::timestamptz[], $8::integer[], $9::integer[], $10::smallint[], $11::smallint[], $12::smallint[], $13::integer[],
  $14::float8[], $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[],
  $22::bigint[], $23::integer[], true);

-- name: arrival_entities
-- The entities of the oldest arrivals.
select distinct o.entity_id from (select a.entity_id from relevo.message_arrival a order by a.id limit $1) o;

-- name: arrivals
-- Takes the oldest arrivals that no other host takes.
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

-- name: settle_in_transaction
-- Settles messages by their locks in a transaction of a caller's, which has a bound of such operations.
select relevo.settle_messages($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::float8[], $6::text[], $7::text[],
  $8::bytea[]) from relevo.count_message_operation();

-- name: places
-- The numbers and states of entities, by their keys.
select id, key, path, kind, status, has_sessions, lock_seconds from relevo.message_entity where key = any ($1::text[]);

-- name: tend
-- In how many seconds the duties have anything to do, or whether they have.
select
  (select extract(epoch from m.visible_at - relevo.now())::float8 from relevo.message m
    where m.state in (4, 5) and m.visible_at is not null order by m.visible_at limit 1) as due,
  (select extract(epoch from m.expires_at - relevo.now())::float8 from relevo.message m
    where m.state in (0, 5, 6) and m.expires_at is not null order by m.expires_at limit 1) as expired,
  case when relevo.lost_hosts() <> '{}' then 0 else extract(epoch from least(
    (select m.locked_until from relevo.message m where m.locked_until is not null order by m.locked_until limit 1),
    (select s.locked_until from relevo.message_session s where s.locked_until is not null order by s.locked_until limit 1)
  ) - relevo.now())::float8 end as lost,
  exists (select from relevo.message_delta) as counts,
  exists (select from relevo.message_class where slo is not null and on_breach <> 'none') as targets,
  exists (select from relevo.message_consumers where state = 'paused' and until <= relevo.now()) as pauses,
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
-- Forgets ids, settlements, tenants and sessions that are over; returns how many of a kind, at most.
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

-- name: last_message
-- The highest number of a message of an entity or sub-queue; null if it has none.
select max(m.sequence) from relevo.message m where m.entity_id = $1 and m.sub_queue = $2;

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

-- name: rates
-- What was sent, delivered and completed lately by the classes of an entity; see `message_rate`.
select k.name, relevo.faded_counts(r.sent, g.age, 0) as sent, relevo.faded_counts(r.delivered, g.age, 0) as delivered,
  relevo.faded_counts(r.completed, g.age, 0) as completed
from relevo.message_rate r join relevo.message_class k on k.entity_id = r.entity_id and k.number = r.class
cross join lateral (select extract(epoch from relevo.now() - r.at)::float8 as age) g
where r.entity_id = $1;

-- name: oldest
-- How many seconds the oldest claimable message of each class has waited, of the next hundred.
select k.number, k.name, extract(epoch from relevo.now() - (select min(o.enqueued_at) from (
  select m.enqueued_at from relevo.message m where m.entity_id = $1 and m.sub_queue = 0 and m.class = k.number and m.state = 0
  order by m.rank, m.sequence limit 100) o))::float8 as age
from relevo.message_class k where k.entity_id = $1;

-- name: held_session
-- A session by its key, for somebody who says which holder he is.
select s.id as session, s.key, $3::bigint as holder, s.locked_until from relevo.message_session s where s.entity_id = $1 and s.key = $2;

-- name: figures
-- Counters of a page of entities by class, folded or not, with the age of the oldest claimable message of the next hundred. What no
-- subscription wanted and what rules failed for has no class, and an empty name for it.
with page as (
  select e.id, e.key, e.path, e.kind from relevo.message_entity e where e.key > $1 order by e.key limit $2),
counted as (
  select c.entity_id, c.class, sum(c.active) filter (where c.sub_queue = 0) as active, sum(c.locked) filter (where c.sub_queue = 0) as locked,
    sum(c.deferred) filter (where c.sub_queue = 0) as deferred, sum(c.scheduled) filter (where c.sub_queue = 0) as scheduled,
    sum(c.active + c.locked + c.deferred) filter (where c.sub_queue > 0) as dead_letter, sum(c.bytes) as bytes, sum(c.sent) as sent,
    sum(c.delivered) as delivered, sum(c.completed) as completed, sum(c.abandoned) as abandoned, sum(c.lock_lost) as lock_lost,
    sum(c.dead_lettered) as dead_lettered, sum(c.expired) as expired, sum(c.preempted) as preempted, sum(c.in_target) as in_target,
    sum(c.out_of_target) as out_of_target, sum(c.floor_claims) as floor_claims, sum(c.unrouted) as unrouted, sum(c.filter_errors) as filter_errors
  from (select * from relevo.message_count where entity_id in (select id from page)
        union all select * from relevo.message_delta where entity_id in (select id from page)) c
  group by c.entity_id, c.class)
select p.path, p.kind, k.name, coalesce(c.active, 0)::bigint as active, coalesce(c.locked, 0)::bigint as locked,
  coalesce(c.deferred, 0)::bigint as deferred, coalesce(c.scheduled, 0)::bigint as scheduled, coalesce(c.dead_letter, 0)::bigint as dead_letter,
  coalesce(c.bytes, 0)::bigint as bytes, coalesce(c.sent, 0)::bigint as sent, coalesce(c.delivered, 0)::bigint as delivered,
  coalesce(c.completed, 0)::bigint as completed, coalesce(c.abandoned, 0)::bigint as abandoned, coalesce(c.lock_lost, 0)::bigint as lock_lost,
  coalesce(c.dead_lettered, 0)::bigint as dead_lettered, coalesce(c.expired, 0)::bigint as expired, coalesce(c.preempted, 0)::bigint as preempted,
  coalesce(c.in_target, 0)::bigint as in_target, coalesce(c.out_of_target, 0)::bigint as out_of_target,
  coalesce(c.floor_claims, 0)::bigint as floor_claims, coalesce(c.unrouted, 0)::bigint as unrouted,
  coalesce(c.filter_errors, 0)::bigint as filter_errors,
  extract(epoch from relevo.now() - (select min(o.enqueued_at) from (
    select m.enqueued_at from relevo.message m
    where m.entity_id = p.id and m.sub_queue = 0 and m.class = k.number and m.state = 0
    order by m.rank, m.sequence limit 100) o))::float8 as oldest_age,
  array(
    select coalesce(w.amount, 0) from generate_series(0, 25) as b (bucket)
    left join relevo.message_wait w on w.entity_id = p.id and w.class = k.number and w.bucket = b.bucket order by b.bucket) as waits,
  relevo.faded_counts(r.sent, extract(epoch from relevo.now() - r.at)::float8, 0) as sent_lately,
  relevo.faded_counts(r.delivered, extract(epoch from relevo.now() - r.at)::float8, 0) as delivered_lately,
  relevo.faded_counts(r.completed, extract(epoch from relevo.now() - r.at)::float8, 0) as completed_lately
from page p join (
  select o.entity_id, o.number, o.name, o.base, o.retired from relevo.message_class o where o.entity_id in (select id from page)
  union all select id, 0, '', -1, true from page) k on k.entity_id = p.id
left join counted c on c.entity_id = p.id and c.class = k.number
left join relevo.message_rate r on r.entity_id = p.id and r.class = k.number and k.name <> ''
where not k.retired or c.active > 0 or c.unrouted > 0 or c.filter_errors > 0
order by p.key, k.base desc;

-- name: lock_definitions
-- Lets one change of definitions follow the other, to the end of the transaction.
select pg_advisory_xact_lock(1380273169, 0);

-- name: lock_entities
-- Waits for messages that are being accepted by these entities, and holds up others, to the end of the transaction.
select pg_advisory_xact_lock(1380273169, e.id) from (select unnest($1::integer[]) as id order by 1) as e;

-- name: find_entity
-- An entity by its key.
select e.id, e.topic_id, e.kind, e.name, e.path, e.version, e.created_at, e.updated_at, e.properties::text
from relevo.message_entity e where e.key = $1;

-- name: list_entities
-- Entities of a kind, of one topic if it is named, by key.
select e.id, e.topic_id, e.kind, e.name, e.path, e.version, e.created_at, e.updated_at, e.properties::text
from relevo.message_entity e
where e.kind = $1 and ($2::text is null or e.topic_id = (select t.id from relevo.message_entity t where t.key = $2)) and e.key > $3
order by e.key limit $4;

-- name: entity_classes
-- All classes of an entity, also those that it has no more.
select c.number, c.name, c.low, c.high, c.base, c.weight, c.slo, c.express, c.preempts, c.preemptible, c.on_breach
from relevo.message_class c where c.entity_id = $1 order by c.number;

-- name: entity_forwards
-- Which entities forward, and to where.
select e.key, lower(e.forward_to) as destination from relevo.message_entity e where e.forward_to is not null;

-- name: entity_count
-- How many entities there are, and how many are of one topic.
select count(*) as entities, count(*) filter (where e.topic_id = $1) as subscriptions from relevo.message_entity e;

-- name: rule_count
-- How many rules of each kind the subscriptions of a topic have.
select count(*) filter (where r.rule ->> 'type' = 'sql') as sql, count(*) filter (where r.rule ->> 'type' <> 'sql') as correlation
from relevo.message_rule r join relevo.message_entity e on e.id = r.entity_id where e.topic_id = $1;

-- name: put_entity
-- Creates an entity, or gives it a new version.
select * from relevo.put_message_entity($1::integer, $2::text, $3::text, $4::text, $5::jsonb, $6::jsonb, $7::jsonb);

-- name: touch_entities
-- Gives entities a new version, because a subscription or a rule has changed.
update relevo.message_entity e set version = e.version + 1, updated_at = relevo.now() where e.id = any ($1::integer[])
returning e.id, e.version;

-- name: drop_entity
-- Removes an entity with its subscriptions, rules, classes and counters.
delete from relevo.message_entity e where e.id = $1;

-- name: idle_entities
-- Entities that nobody has used for as long as they say, which hold nothing and which no host serves; with $2 only that one.
select e.id, e.path from relevo.message_entity e
where e.idle_seconds is not null and e.used_at < relevo.now() - make_interval(secs => e.idle_seconds)
  and ($2::integer is null or e.id = $2)
  and not exists (select from relevo.message m where m.entity_id = e.id)
  and not exists (select from relevo.message_arrival a where a.entity_id = e.id)
  and not exists (select from relevo.message_entity s where s.topic_id = e.id)
  and not exists (
    select from relevo.message_consumers c join relevo.message_replica r on r.consumers = c.id
    join relevo.host h on h.incarnation = r.host and h.ended_at is null where e.id = any (c.sources))
limit $1;

-- name: put_rules
-- Sets rules of a subscription.
insert into relevo.message_rule as r (entity_id, name, key, rule)
select $1::integer, g.name, lower(g.name), g.rule::json from unnest($2::text[], $3::text[]) as g (name, rule)
on conflict (entity_id, key) do update set name = excluded.name, rule = excluded.rule;

-- name: delete_rule
-- Removes a rule of a subscription.
delete from relevo.message_rule r where r.entity_id = $1 and r.key = $2 returning r.name;

-- name: entity_rules
-- The rules of a subscription.
select r.name, r.rule::text as rule from relevo.message_rule r where r.entity_id = $1 order by r.key;

-- name: rerank
-- Re-ranks the messages of an entity.
select relevo.rerank_messages($1::integer);

-- name: purge_dropped
-- Removes messages of entities that do not exist any more.
select relevo.purge_dropped_messages($1::integer) as removed;

-- name: definition
-- An entity, and the subscriptions of a topic, with classes and rules, as of one moment.
select d.id, d.kind, d.name, d.path, d.version, d.properties::text,
  (select json_object_agg(lower(c.name), c.number) from relevo.message_class c where c.entity_id = d.id and not c.retired)::text as numbers,
  (select json_object_agg(r.name, r.rule order by r.key) from relevo.message_rule r where r.entity_id = d.id)::text as rules
from (
  select e.* from relevo.message_entity e where e.key = $1
  union all
  select s.* from relevo.message_entity e join relevo.message_entity s on s.topic_id = e.id where e.key = $1
) d order by d.topic_id nulls first, d.key;

-- name: entity_key
-- The key of an entity by its number.
select e.key from relevo.message_entity e where e.id = $1;

-- name: consumers_with_messages
-- The consumers of a host that are not paused and have a message to claim in one of their sources.
select id from relevo.consumers_with_messages($1::uuid, $2::integer[], $3::integer[]) as c (id);

-- name: messages_due
-- Whether a host has anything to do for messages; see the function.
select relevo.messages_due($1::uuid, $2::integer[], $3::integer[], $4::boolean) as due;

-- name: sources_gone
-- Whether a source of some consumers does not exist any more.
select exists (select from unnest($1::integer[]) as s (id)
  where not exists (select from relevo.message_entity e where e.id = s.id)) as gone;

-- name: serve
-- One round of a host: settles what its consumers have finished, and claims; see the function.
select * from relevo.serve_messages($1, $2, $3::integer[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::integer[],
  $9::bigint[], $10::bigint[], $11::text[], $12::timestamptz[], $13::float8[], $14::text[], $15::text[], $16::bytea[]);

-- name: serve_claims
-- The same of a host that has nothing to settle.
select * from relevo.serve_messages($1, $2, $3::integer[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::integer[]);

-- name: held_messages
-- What a host holds, by the numbers of its claims, or all.
select 'claimed' as kind, m.sequence, m.token, m.claim, m.entity_id, m.sub_queue, m.consumers, m.class, m.priority, m.body_kind, m.delivery_count,
  m.preempt_count, m.enqueued_at, m.expires_at, m.locked_until, m.enqueued_sequence, m.message_id, m.fairness_key, null, m.head, m.body,
  m.checkpoint, m.dead
from relevo.message m where m.host = $1 and ($2::bigint[] is null or m.claim = any ($2)) order by m.claim, m.sequence;

-- name: held_tokens
-- The locks of all that a host holds.
select sequence, token, claim from relevo.message where host = $1;

-- name: save_messages
-- Stores checkpoints of held messages; see the function.
select * from relevo.save_messages($1::bigint[], $2::bigint[], $3::bytea[]);

-- name: declare_consumers
-- Stores that a host serves consumers; see the function.
select * from relevo.declare_consumers($1, $2, $3::jsonb, $4::text[], $5::integer[], $6);

-- name: leave_consumers
-- A host serves no consumers any more.
delete from relevo.message_replica where host = $1;

-- name: consumer_sources
-- Entities that consumers name as their sources, by key.
select id, key, path, kind, has_sessions, properties::text as properties from relevo.message_entity where key = any ($1::text[]);

-- name: class_names
-- The names of classes, by entity and number.
select k.entity_id, k.number, k.name, e.path from relevo.message_class k join relevo.message_entity e on e.id = k.entity_id
where k.entity_id = any ($1::integer[]);

-- name: ask_preemption
-- Asks handlers to make room for waiting messages; returns their hosts.
select relevo.ask_preemption($1, $2, $3, $4) as host;

-- name: lock_seconds
-- For how long a lock lasts; null while a host holds the message, no row if the lock is lost.
select extract(epoch from locked_until - relevo.now())::float8 as seconds from relevo.message
where sequence = $1 and token = $2 and (locked_until is null or locked_until > relevo.now());

-- name: heads
-- The next messages of each class that a claim could take, each in its order.
select k.name, m.rank, m.sequence, coalesce(m.fairness_key, '') as key
from relevo.message_class k cross join lateral (
  select m.rank, m.sequence, m.fairness_key from relevo.message m
  where m.entity_id = k.entity_id and m.sub_queue = $2 and m.class = k.number and m.state = 0
    and (m.expires_at is null or m.expires_at > relevo.now())
  order by m.rank, m.sequence limit $3) m
where k.entity_id = $1;

-- name: held_next
-- The next messages of the sessions of an entity that hosts hold and of which they handle none now, in the order in which they are taken.
select n.sequence from relevo.host h join relevo.message_session s on s.host = h.incarnation and s.entity_id = $1 and s.held
cross join lateral (
  select m.sequence, m.state from relevo.message m
  where m.session = s.id and m.state in (0, 5, 6) and (m.state = 5 or m.expires_at is null or m.expires_at > relevo.now())
  order by m.sequence limit 1) n
where h.ended_at is null and n.state <> 5 and not exists (select from relevo.message o where o.session = s.id and o.state in (1, 3))
order by s.id;

-- name: tally
-- What earlier claims of an entity have left for the next one.
select t.express_run, t.numbers, t.vtimes, t.tags from relevo.message_tally t where t.entity_id = $1;

-- name: peek_numbers
-- Messages of an entity or sub-queue by their numbers, as `peek` has them.
select m.sequence, m.entity_id, m.sub_queue, m.class, k.name as class_name, m.state, m.priority, m.body_kind, m.delivery_count,
  m.preempt_count, m.enqueued_at, m.expires_at, m.visible_at, coalesce(m.locked_until, h.lease_until) as locked_until,
  m.enqueued_sequence, m.message_id, m.fairness_key, m.head, m.body, m.checkpoint, m.dead
from relevo.message m
join relevo.message_class k on k.entity_id = m.entity_id and k.number = m.class
left join relevo.host h on h.incarnation = m.host
where m.entity_id = $1 and m.sub_queue = $2 and m.sequence = any ($3::bigint[]);

-- name: consumers_list
-- Consumers by name, with the hosts that serve them and what these hold; of one entity, or all.
select c.id, c.name, c.definition::text, c.state, c.reason, c.until, c.updated_at,
  array(select e.path from unnest(c.sources) with ordinality as s (id, n) join relevo.message_entity e on e.id = s.id order by s.n) as sources,
  (select coalesce(json_agg(json_build_object('host', h.name, 'slots', s.slots, 'held', (
      select coalesce(json_agg(json_build_object('class', k.name, 'key', coalesce(m.fairness_key, ''))), '[]') from relevo.message m
      join relevo.message_class k on k.entity_id = m.entity_id and k.number = m.class
      where m.host = s.host and m.consumers = c.id)) order by h.name), '[]')
   from relevo.message_replica s join relevo.host h on h.incarnation = s.host and h.ended_at is null
   where s.consumers = c.id)::text as hosts
from relevo.message_consumers c
where c.name > $1 and ($2::integer is null or $2 = any (c.sources)) and ($4::text is null or c.name = $4)
order by c.name limit $3;

-- name: set_consumers_state
-- Pauses or resumes consumers.
update relevo.message_consumers set state = $2, reason = $3, until = $4, updated_at = relevo.now() where name = $1
returning id, name, state;

-- name: resume_consumers
-- Resumes consumers whose pause is over.
update relevo.message_consumers set state = 'running', reason = null, until = null, updated_at = relevo.now()
where state = 'paused' and until <= relevo.now() returning id, name;

-- name: receive_deferred
-- Locks deferred messages by their numbers, all or none; see the function.
select * from relevo.receive_deferred($1, $2, $3::bigint[], $4);

-- name: receive_deferred_from_session
-- The same for the holder of a session.
select * from relevo.receive_deferred($1, 0::smallint, $2::bigint[], $3, $4, $5, $6);

-- name: accept_session
-- Gives a session to a holder; no row if it is held, or none has work.
select * from relevo.accept_session($1, $2, $3);

-- name: receive_from_session
-- Locks the next messages of a session for its holder; a row of the kind `lost` if it is the holder no more.
select * from relevo.receive_from_session($1, $2, $3, $4, $5, $6, $7);

-- name: renew_session
-- Renews the lock of a session; no row if the holder has lost it.
select * from relevo.renew_session($1, $2);

-- name: close_session
-- Ends the hold on a session; false if the holder had lost it.
select relevo.close_session($1, $2, $3);

-- name: set_session_state
-- Stores the state of a session; false if the holder has lost it.
select relevo.set_session_state($1, $2, $3);

-- name: session_state
-- The state of a session, for its holder; no row if it has lost it.
select s.state from relevo.message_session s
where s.id = $1 and s.holder = $2 and s.held and (s.locked_until is null or s.locked_until > relevo.now());

-- name: sessions
-- A page of the sessions of an entity by key, perhaps only those that changed since a time.
select s.id, s.key, s.held, s.locked_until, s.updated_at, octet_length(s.state) as state_bytes from relevo.message_session s
where s.entity_id = $1 and s.key > $2 and ($3::timestamptz is null or s.updated_at >= $3) order by s.key limit $4;

-- name: redrive
-- Returns dead-lettered messages to their entity; answers how many.
select cardinality(relevo.redrive_messages($1, $2, $3::bigint[], p_reset_count => $4));

-- name: purge
-- Deletes messages that nobody holds; answers how many.
select relevo.purge_messages($1, $2, $3, $4);

-- name: cancel_scheduled
-- Deletes scheduled messages; answers which of them were.
select relevo.cancel_scheduled($1, $2::bigint[]);

-- name: reprioritize
-- Gives messages another class and priority; answers how many.
select cardinality(relevo.reprioritize_messages($1, $2::bigint[], (
  select k.number from relevo.message_class k where k.entity_id = $1 and lower(k.name) = $3 and not k.retired), $4));

-- name: breach_targets
-- Deals with messages that missed the target of their class; returns how many.
select relevo.breach_targets($1);

-- name: load
-- What entities have to do, by class: waiting, held, sent and completed in all, and the age of the oldest of the next hundred.
select k.slo, coalesce(sum(c.active), 0)::bigint as active, coalesce(sum(c.locked), 0)::bigint as locked,
  coalesce(sum(c.sent), 0)::bigint as sent, coalesce(sum(c.completed), 0)::bigint as completed,
  extract(epoch from relevo.now() - (select min(o.enqueued_at) from (
    select m.enqueued_at from relevo.message m
    where m.entity_id = k.entity_id and m.sub_queue = 0 and m.class = k.number and m.state = 0
    order by m.rank, m.sequence limit 100) o))::float8 as oldest
from relevo.message_entity e join relevo.message_class k on k.entity_id = e.id
left join (select * from relevo.message_count union all select * from relevo.message_delta) c
  on c.entity_id = e.id and c.class = k.number and c.sub_queue = 0
where e.key = any ($1::text[])
group by k.entity_id, k.number, k.slo;
