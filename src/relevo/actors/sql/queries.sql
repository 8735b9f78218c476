-- name: load_actors
-- What is stored of actors, in the order asked for; documents beyond the bytes of an answer are left out, but for the first.
with found as (
  select g.n, a.revision, a.incarnation, a.schema, a.quarantine_error, a.document,
         sum(octet_length(a.document)) over (order by g.n) as bytes
  from unnest($1::text[]) with ordinality as g (id, n) left join relevo.actor a on a.id = g.id
)
select f.revision, f.incarnation, f.schema, f.quarantine_error,
       case when f.n = 1 or f.bytes <= $2 then f.document end as document,
       f.document is not null and f.n > 1 and f.bytes > $2 as is_left_out
from found f order by f.n;

-- name: commit_turns
-- Writes the turns of a batch; the rows are those that were refused.
select nth, outcome from relevo.commit_turns(
  $1::bigint, $2::integer[], $3::bigint[],
  $4::integer[], $5::text[], $6::text[], $7::integer[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
  $12::boolean[], $13::boolean[], $14::integer[], $15::bytea[],
  $16::integer[], $17::bigint[],
  $18::integer[], $19::text[], $20::text[], $21::timestamptz[],
  $22::integer[], $23::text[], $24::text[], $25::text[], $26::bytea[],
  $27::integer[], $28::text[], $29::text[], $30::integer[], $31::text[],
  $32::timestamptz[], $33::text[], $34::bytea[], $35::bytea[], $36::integer[],
  $37::integer[], $38::text[], $39::text[], $40::text[], $41::bytea[], $42::bytea[],
  $43::integer[], $44::text[], $45::text[], $46::text[], $47::integer[],
  $48::text[], $49::bytea[], $50::text[], $51::text[], $52::integer[], $53::text[],
  $54::integer[], $55::text[], $56::smallint[], $57::text[], $58::bigint[], $59::text[]);

-- name: commit_document
-- Writes a turn of one actor that changed its document alone; a row says that it was refused.
select 1 as nth, c.outcome from relevo.commit_document(
  $1::bigint, $2::integer, $3::bigint, $4::text, $5::text, $6::integer, $7::bigint, $8::bigint, $9::bigint, $10::integer, $11::bytea)
  as c (outcome)
where c.outcome is not null;

-- name: actor_entry
-- The value of an entry of a map.
select value from relevo.actor_entry where actor = $1 and map = $2 and key = $3;

-- name: actor_entries
-- The entries of a map after a key.
select key, value from relevo.actor_entry where actor = $1 and map = $2 and key > $3 order by key limit $4::integer + 1;

-- name: recorded_call
-- The recorded answer of a call.
select call_id, method, digest, answer from relevo.actor_call where actor = $1 and call_id = $2;

-- name: due_reminders
-- Reminders whose time has come.
select * from relevo.due_actor_reminders($1::text[], $2::integer[], $3::text[], $4::integer);

-- name: due_messages
-- The next message of each pair, if its time has come.
select * from relevo.due_actor_messages($1::text[], $2::integer[], $3::text[], $4::integer);

-- name: has_due
-- Whether a reminder or a message is due in some slots.
select exists (select from relevo.due_actor_reminders($1::text[], $2::integer[], '{}', 1))
  or exists (select from relevo.due_actor_messages($1::text[], $2::integer[], '{}', 1)) as due;

-- name: next_due
-- Seconds until something becomes due.
select extract(epoch from relevo.next_actor_due($1::text[], $2::integer[]) - relevo.now())::float8;

-- name: fail_message
-- Notes a failed attempt at a message.
select relevo.fail_actor_message($1::integer, $2::bigint, $3::bigint, $4::integer, $5::text, $6::float8);

-- name: fail_reminder
-- Notes a failed attempt at a reminder.
select relevo.fail_actor_reminder(
  $1::integer, $2::bigint, $3::text, $4::text, $5::timestamptz, $6::integer, $7::text, $8::float8);

-- name: begin_messages
-- Notes that messages begin which may have ended a host, or that they are dead.
select number, is_dead from relevo.begin_actor_messages($1::integer[], $2::bigint[], $3::bigint[], $4::integer, $5::text);

-- name: begin_reminders
-- Notes that occurrences of reminders begin which may have ended a host, or that they are dead.
select actor, name, is_dead from relevo.begin_actor_reminders(
  $1::integer[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::integer, $7::text);

-- name: send_messages
-- Stores messages from outside of actors.
select relevo.send_actor_messages(
  $1::text[], $2::text[], $3::integer[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::integer[], $9::text[]);

-- name: dead_messages
-- Dead messages after a number, of one receiver or of all.
select number, receiver, sender, method, digest, headers, attempt, sent_at, dead_at, error, body
from relevo.actor_message where dead_at is not null and number > $1 and ($2::text is null or receiver = $2)
order by number limit $3::integer + 1;

-- name: redrive_message
-- A dead message is tried again.
update relevo.actor_message set dead_at = null, due = null, attempt = 0, error = null, crashes = null, begun_epoch = null
where number = $1 and dead_at is not null returning placement_group;

-- name: discard_message
-- A dead message goes.
delete from relevo.actor_message where number = $1 and dead_at is not null returning number;

-- name: dead_reminders
-- Dead reminders after one, of one actor or of all.
select actor, name, method, due, attempt, dead_at, error, schedule, payload
from relevo.actor_reminder where dead_at is not null and (actor, name) > ($1, $2) and ($3::text is null or actor = $3)
order by actor, name limit $4::integer + 1;

-- name: redrive_reminder
-- The occurrence of a dead reminder is tried again.
update relevo.actor_reminder set
  dead_at = null, retry_at = relevo.now(), attempt = 0, error = null, crashes = null, begun_epoch = null
where actor = $1 and name = $2 and dead_at is not null returning placement_group;

-- name: discard_reminder
-- A dead reminder goes.
delete from relevo.actor_reminder where actor = $1 and name = $2 and dead_at is not null returning name;

-- name: list_actors
-- Actors between two ids that have stored data, and the hosts that own their slots.
select a.id, a.revision, a.incarnation, a.updated_at, a.quarantined_at, h.name as host
from relevo.actor a
left join relevo.unit u on u.kind = 'actors' and u.name = a.placement_group
left join relevo.lease l on l.unit_id = u.id and l.name = a.slot::text
left join relevo.host h on h.incarnation = l.owner and h.ended_at is null and h.lease_until > relevo.now()
where a.id > $1 and a.id < $2 and a.deleted_at is null
order by a.id limit $3::integer + 1;

-- name: quarantine
-- Notes that the state of an actor cannot be used.
select relevo.quarantine_actor($1::integer, $2::bigint, $3::text, $4::text);

-- name: list_quarantined
-- Actors in quarantine after an id.
select id, revision, schema, quarantined_at, quarantine_error, octet_length(document) as bytes
from relevo.actor where quarantined_at is not null and id > $1 order by id limit $2::integer + 1;

-- name: end_quarantine
-- An actor leaves quarantine, with the document it has or with another one; then what a host has in memory is stale.
update relevo.actor set
  quarantined_at = null, quarantine_error = null, updated_at = relevo.now(), revision = revision + $2::boolean::integer,
  commit_number = case when $2::boolean then -1 else commit_number end,
  document = case when $2::boolean then $3::bytea else document end,
  schema = case when $2::boolean then $4::integer else schema end
where id = $1 and quarantined_at is not null returning id;

-- name: trim_calls
-- Forgets recorded calls that are older than they are kept, the oldest first.
with old as (
  select actor, call_id from relevo.actor_call where recorded_at < relevo.now() - make_interval(secs => $1)
  order by recorded_at limit $2 for update skip locked
)
delete from relevo.actor_call c using old where c.actor = old.actor and c.call_id = old.call_id returning 1;

-- name: trim_tombstones
-- Forgets actors that were deleted long ago, the oldest first.
with old as (
  select id from relevo.actor where deleted_at < relevo.now() - make_interval(secs => $1)
  order by deleted_at limit $2 for update skip locked
)
delete from relevo.actor a using old where a.id = old.id returning 1;

-- name: declare_types
-- The types that a host serves, as it knows them; what has not changed is not written.
insert into relevo.actor_type as t (name, placement_group, persist, interface)
select g.name, g.placement_group, g.persist, g.interface::jsonb
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as g (name, placement_group, persist, interface) order by g.name
on conflict (name) do update set
  placement_group = excluded.placement_group, persist = excluded.persist, interface = excluded.interface, declared_at = relevo.now()
where (t.placement_group, t.persist, t.interface) is distinct from (excluded.placement_group, excluded.persist, excluded.interface);

-- name: declared_types
-- The types that hosts have declared.
select name, placement_group, persist, interface::text as interface from relevo.actor_type order by name;

-- name: join_group
-- Makes a placement group if it is missing.
select slots, total from relevo.join_actor_group($1::text, $2::integer, $3::integer);

-- name: group_slots
-- How many slots a placement group has.
select slots from relevo.actor_group where name = $1;

-- name: get_actor
-- What is stored of one actor, without its state, and the host that owns its slot.
select a.id, a.revision, a.incarnation, a.updated_at, a.quarantined_at, h.name as host, a.schema, a.placement_group, a.slot,
       a.quarantine_error, coalesce(octet_length(a.document), 0) as bytes
from relevo.actor a
left join relevo.unit u on u.kind = 'actors' and u.name = a.placement_group
left join relevo.lease l on l.unit_id = u.id and l.name = a.slot::text
left join relevo.host h on h.incarnation = l.owner and h.ended_at is null and h.lease_until > relevo.now()
where a.id = $1 and a.deleted_at is null;

-- name: slot_owner
-- The live host that owns a slot.
select h.name, l.epoch
from relevo.unit u join relevo.lease l on l.unit_id = u.id and l.name = $2::integer::text
join relevo.host h on h.incarnation = l.owner and h.ended_at is null and h.lease_until > relevo.now()
where u.kind = 'actors' and u.name = $1;

-- name: slots_by_host
-- How many slots of each placement group the hosts own.
select u.name as placement_group, h.name as host, count(*)::integer as slots,
       count(*) filter (where l.handoff_to is not null)::integer as moving
from relevo.unit u join relevo.lease l on l.unit_id = u.id
left join relevo.host h on h.incarnation = l.owner and h.ended_at is null and h.lease_until > relevo.now()
where u.kind = 'actors' group by u.name, h.name order by u.name, h.name;

-- name: count_waiting
-- How many reminders and messages of each type of actors wait, are late, have failed, and are dead.
select split_part(w.actor, '/', 1) as type, count(*) filter (where w.kind = 'reminder' and not w.dead)::integer as reminders,
       count(*) filter (where w.kind = 'message' and not w.dead)::integer as messages,
       count(*) filter (where w.failed and not w.dead)::integer as failing, count(*) filter (where w.dead)::integer as dead,
       max(extract(epoch from relevo.now() - w.due)) filter (where not w.dead and w.due < relevo.now())::float8 as late_seconds
from (
  select actor, 'reminder' as kind, coalesce(retry_at, due) as due, attempt > 0 as failed, dead_at is not null as dead
  from relevo.actor_reminder
  union all
  select receiver, 'message', coalesce(due, sent_at), attempt > 0, dead_at is not null from relevo.actor_message
) w group by 1 order by 1;

-- name: reminders_of
-- The reminders of an actor after a name.
select name, method, due, retry_at, attempt, dead_at, error, schedule, payload
from relevo.actor_reminder where actor = $1 and name > $2 order by name limit $3::integer + 1;

-- name: fire_reminder
-- The next occurrence of a reminder that is not dead is due now.
update relevo.actor_reminder set retry_at = relevo.now() where actor = $1 and name = $2 and dead_at is null
returning placement_group;

-- name: has_reminder
-- Whether an actor has a reminder.
select exists (select from relevo.actor_reminder where actor = $1 and name = $2);

-- name: dead_letters
-- Dead messages and reminders, the messages first: those of one actor or of all, after a kind, a number, an actor and a name.
select * from (
  select 'message' as kind, number, receiver as actor, '' as name, sender, method, attempt, sent_at as since, dead_at, error
  from relevo.actor_message
  where dead_at is not null and $1 = 'message' and number > $2 and ($5::text is null or receiver = $5)
  order by number limit $6::integer + 1) m
union all
select * from (
  select 'reminder', 0::bigint, actor, name, '', method, attempt, due, dead_at, error
  from relevo.actor_reminder
  where dead_at is not null and (actor, name) > ($3, $4) and ($5::text is null or actor = $5)
  order by actor, name limit $6::integer + 1) r
order by kind, number, actor, name limit $6::integer + 1;

-- name: dead_message
-- One dead message.
select number, receiver as actor, sender, method, attempt, sent_at as since, dead_at, error, headers, body
from relevo.actor_message where number = $1 and dead_at is not null;

-- name: dead_reminder
-- One dead reminder.
select actor, name, method, attempt, due as since, dead_at, error, payload as body
from relevo.actor_reminder where actor = $1 and name = $2 and dead_at is not null;

-- name: faults_of
-- What fails at an actor: its state, reminders and messages with an error.
select 'state' as kind, '' as name, quarantine_error as error, 0 as attempt, quarantined_at as at, false as dead
from relevo.actor where id = $1 and quarantined_at is not null
union all
select 'reminder', name, error, attempt, coalesce(dead_at, retry_at, due), dead_at is not null
from relevo.actor_reminder where actor = $1 and error is not null
union all
select 'message', number::text, error, attempt, due, false from relevo.actor_message
where placement_group = $2 and slot = $3 and receiver = $1 and error is not null and dead_at is null
union all
select 'message', number::text, error, attempt, dead_at, true from relevo.actor_message
where receiver = $1 and dead_at is not null
order by 1, 2 limit $4;

-- name: read_routes
-- The owner of each lease of a unit, if it lives, and where it takes what is for that lease.
select u.id as unit_id, l.name, l.epoch, l.in_order_from, h.incarnation as owner, h.name as host, m.address,
       (extract(epoch from h.started_at) * 1000000)::bigint as since
from relevo.unit u
join relevo.lease l on l.unit_id = u.id
left join relevo.host h on h.incarnation = l.owner and h.ended_at is null and h.lease_until > relevo.now()
left join relevo.member m on m.unit_id = u.id and m.host = h.incarnation
where u.kind = $1 and u.name = $2;

-- name: hosts_of_group
-- Where the live hosts of a placement group take calls; those that are to stop take no new ones.
select m.address, h.incarnation
from relevo.unit u
join relevo.member m on m.unit_id = u.id and not m.draining and m.address is not null
join relevo.host h on h.incarnation = m.host and not h.draining and h.ended_at is null and h.lease_until > relevo.now()
where u.kind = 'actors' and u.name = $1
order by m.address;

-- name: registered_at
-- When an incarnation registered, in microseconds.
select (extract(epoch from started_at) * 1000000)::bigint from relevo.host where incarnation = $1;

-- name: lock_groups
-- All placement groups, which no transaction changes meanwhile.
select name, slots from relevo.actor_group order by name for update;

-- name: serving_hosts
-- The hosts that serve a placement group, or own a slot of it and may still be at work.
select h.name from relevo.unit u join relevo.member m on m.unit_id = u.id join relevo.host h on h.incarnation = m.host
where u.kind = 'actors' and u.name = $1 and h.ended_at is null and h.lease_until > relevo.now()
union
select h.name from relevo.unit u join relevo.lease l on l.unit_id = u.id join relevo.host h on h.incarnation = l.owner
where u.kind = 'actors' and u.name = $1 and h.lease_until > relevo.now()
order by 1;

-- name: lock_messages
-- Keeps senders out until the end of the transaction.
lock table relevo.actor_message in share row exclusive mode;

-- name: actors_of_group
-- Stored actors of a placement group after an id, deleted ones too.
select id from relevo.actor where placement_group = $1 and id > $2 order by id limit $3::integer;

-- name: place_actors
-- Gives actors other slots.
update relevo.actor a set slot = g.slot from unnest($1::text[], $2::integer[]) as g (id, slot)
where a.id = g.id and a.slot <> g.slot;

-- name: place_reminders
-- Gives the reminders of actors other slots.
update relevo.actor_reminder r set slot = g.slot from unnest($1::text[], $2::integer[]) as g (id, slot)
where r.actor = g.id and r.slot <> g.slot;

-- name: messages_of_group
-- Messages to actors of a placement group after a number, dead ones too.
select number, receiver from relevo.actor_message where placement_group = $1 and number > $2 order by number limit $3::integer;

-- name: place_messages
-- Gives messages other slots.
update relevo.actor_message m set slot = g.slot from unnest($1::bigint[], $2::integer[]) as g (number, slot)
where m.number = g.number and m.slot <> g.slot;

-- name: leases_of_group
-- The leases of the slots of a placement group.
select l.id, l.unit_id, l.epoch from relevo.unit u join relevo.lease l on l.unit_id = u.id
where u.kind = 'actors' and u.name = $1;

-- name: drop_leases
-- Removes leases of slots that have new ones.
delete from relevo.lease where id = any ($1::integer[]);

-- name: make_leases
-- Makes the leases of the slots of a placement group, with epochs above all that were used.
insert into relevo.lease (unit_id, name, epoch, in_order_from)
select $1::integer, s::text, $3::bigint, $3::bigint from generate_series(0, $2::integer - 1) as s;

-- name: set_group_slots
-- A placement group has so many slots from now on.
update relevo.actor_group set slots = $2 where name = $1;
