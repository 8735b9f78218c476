-- name: accept
-- Accepts messages that were evaluated with versions of entities; see the function.
select * from relevo.accept_messages($1::integer[], $2::bigint[], $3::integer[], $4::text[], $5::bytea[], $6::smallint[],
  $7::timestamptz[], $8::integer[], $9::integer[], $10::smallint[], $11::smallint[], $12::smallint[], $13::integer[],
  $14::float8[], $15::timestamptz[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::smallint[],
  $22::bigint[], $23::integer[]);

-- name: settle
-- Settles messages by their locks; see the function.
select relevo.settle_messages($1::bigint[], $2::bigint[], $3::text[], $4::timestamptz[], $5::float8[], $6::text[], $7::text[],
  $8::bytea[], $9);

-- name: serve
-- One round of a host: settles what its consumers have finished, and claims; see the function.
select * from relevo.serve_messages($1, $2, $3::integer[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::integer[],
  $9::bigint[], $10::bigint[], $11::text[], $12::timestamptz[], $13::float8[], $14::text[], $15::text[], $16::bytea[]);

-- name: serve_claims
-- The same of a host that has nothing to settle.
select * from relevo.serve_messages($1, $2, $3::integer[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::integer[]);

-- name: held_messages
-- What a host holds, by the numbers of its claims, or all.
select 'claimed', m.sequence, m.token, m.claim, m.entity_id, m.sub_queue, m.consumers, m.class, m.priority, m.body_kind, m.delivery_count,
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
select id, key, path, kind, properties::text as properties from relevo.message_entity where key = any ($1::text[]);

-- name: class_names
-- The names of classes, by entity and number.
select k.entity_id, k.number, k.name, e.path from relevo.message_class k join relevo.message_entity e on e.id = k.entity_id
where k.entity_id = any ($1::integer[]);

-- name: ask_preemption
-- Asks handlers to make room for waiting messages; returns their hosts.
select relevo.ask_preemption($1, $2, $3, $4) as host;

-- name: clock
-- The time of the database.
select relevo.now();
