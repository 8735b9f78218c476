-- Virtual actors: their state, map entries, reminders, recorded calls, and the messages to them.
-- after: leases

-- Lock order, on every path, so that no two statements wait for each other:
--   1. fences of slots by lease id (`relevo.stale_fences`)
--   2. rows of actors by id; whoever holds one may write the actor's entries, reminders and recorded calls
--   3. messages: only the owner of the receiver's slot removes live ones, in the transaction that holds the receiver's row;
--      new ones are only inserted
-- Duties pass over rows that others have locked instead of waiting.

-- A placement group: how many slots it has is fixed by the first host that joins it.
create table relevo.actor_group (
  name  text collate "C" primary key,
  slots integer not null check (slots > 0)
);

-- An actor type as the hosts that serve it declare it; clients learn from it where its actors are placed.
create table relevo.actor_type (
  name            text collate "C" primary key,
  placement_group text not null,
  persist         text not null check (persist in ('durable', 'volatile', 'stateless')),
  interface       jsonb not null,
  declared_at     timestamptz not null default relevo.now()
);

-- An actor that has committed a turn. `revision` grows by one with each turn, through deletions too; `commit_number` is that
-- of the batch that wrote the revision, by which a repeated batch knows itself. A deleted actor stays as a tombstone for a
-- while, with its incarnation raised.
create table relevo.actor (
  id              text collate "C" primary key,
  placement_group text not null,
  slot            integer not null,
  schema          integer not null default 1,
  incarnation     bigint not null default 0,
  revision        bigint not null,
  commit_number   bigint not null,
  updated_at      timestamptz not null,
  deleted_at      timestamptz,
  quarantined_at  timestamptz,
  quarantine_error text,
  document        bytea,
  check ((quarantined_at is null) = (quarantine_error is null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
create index actor_deleted on relevo.actor (deleted_at) where deleted_at is not null;
create index actor_quarantined on relevo.actor (id) where quarantined_at is not null;

-- An entry of a map of an actor.
create table relevo.actor_entry (
  actor text collate "C" not null,
  map   text collate "C" not null,
  key   text collate "C" not null,
  value bytea not null,
  primary key (actor, map, key)
) with (fillfactor = 80);

-- A reminder, with the slot of its actor. A dead one was tried as often as it allows. `crashes` are owners in a row that were
-- lost while the occurrence ran, `begun_epoch` the one that began it last; both are null until an owner was lost with it.
create table relevo.actor_reminder (
  actor           text collate "C" not null,
  name            text collate "C" not null,
  placement_group text not null,
  slot            integer not null,
  attempt         integer not null default 0,  -- failed ones of the occurrence that is due
  due             timestamptz not null,        -- of the occurrence
  retry_at        timestamptz,                 -- after a failed attempt
  dead_at         timestamptz,
  method          text not null,
  schedule        bytea not null,
  payload         bytea not null,
  error           text,
  crashes         integer,
  begun_epoch     bigint,
  primary key (actor, name)
) with (fillfactor = 80);
create index actor_reminder_due on relevo.actor_reminder (placement_group, slot, (coalesce(retry_at, due))) where dead_at is null;
create index actor_reminder_dead on relevo.actor_reminder (actor, name) where dead_at is not null;

-- The answer of a call with an id, which a repeat gets without running.
create table relevo.actor_call (
  actor       text collate "C" not null,
  call_id     text collate "C" not null,
  recorded_at timestamptz not null,
  method      text not null,
  digest      bytea not null,
  answer      bytea not null,
  primary key (actor, call_id)
);
create index actor_call_recorded on relevo.actor_call (recorded_at);

-- A durable message, with the slot of its receiver: the outbox of the sender is the inbox of the receiver. Those of a pair of
-- sender and receiver are handled in the order of their numbers. `due` is null until an attempt has failed. `crashes` and
-- `begun_epoch` are as those of a reminder.
create table relevo.actor_message (
  number          bigint generated always as identity primary key,
  sent_at         timestamptz not null default relevo.now(),
  due             timestamptz,
  dead_at         timestamptz,
  slot            integer not null,
  attempt         integer not null default 0,
  attempts        integer not null,
  on_dead         text not null check (on_dead in ('continue', 'block')),
  placement_group text not null,
  receiver        text collate "C" not null,
  sender          text collate "C" not null,  -- empty: from outside of actors
  method          text not null,
  digest          text not null,
  headers         text not null,              -- as JSON
  body            bytea not null,
  error           text,
  crashes         integer,
  begun_epoch     bigint
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
create index actor_message_pair on relevo.actor_message (placement_group, slot, receiver, sender, number)
  where dead_at is null or on_dead = 'block';
create index actor_message_due on relevo.actor_message (placement_group, slot, due) where due is not null and dead_at is null;
create index actor_message_dead on relevo.actor_message (number) where dead_at is not null;
