-- Priority messaging: queues, topics and subscriptions, their messages, locks, sessions and consumers.
-- after: events users

-- Lock order, on every path, so that no two statements wait for each other:
--   1. entities by id: an advisory lock, shared by what accepts or re-ranks single messages, exclusive for a change of definition
--   2. sessions: the advisory lock of each, by its hash, then the rows by id (`relevo.lock_sessions`)
--   3. rows of consumers by id, then tallies by entity (`relevo.lock_tallies`), then rows of tenants by their key
--   4. rows of messages by number; claims and duties pass over rows that others have locked instead of waiting
--   5. counters, which are only inserted
--   6. stripes of the event log, last
-- A settlement locks message rows only: a message of a session is held only while its session is, and whoever ends that takes it.

-- A queue, a topic or a subscription. `properties` is the definition as users wrote it; the columns after it are what
-- statements decide by, written with it. A change of the definition makes a new version, a change of a subscription or a
-- rule also of its topic: messages are accepted only by the version that they were evaluated with.
create table relevo.message_entity (
  id                 integer generated always as identity primary key,
  topic_id           integer references relevo.message_entity on delete cascade,  -- of a subscription
  version            bigint not null default 1,
  created_at         timestamptz not null default relevo.now(),
  updated_at         timestamptz not null default relevo.now(),
  used_at            timestamptz not null default relevo.now(),
  kind               text not null check (kind in ('queue', 'topic', 'subscription')),
  name               text not null,
  path               text not null,
  key                text collate "C" not null unique,  -- the path in lower case
  properties         jsonb not null,
  status             text not null check (status in ('active', 'send_disabled', 'receive_disabled', 'disabled')),
  is_plain           boolean not null,  -- whether a claim may accept its arrivals: no classifier, forwarding, sessions or tags
  policy             text not null check (policy in ('fifo', 'strict', 'aging', 'deadline', 'weighted')),
  rank_by_time       boolean not null,  -- rank = (microseconds of the arrival) + offset of the class - priority * step
  rank_step          bigint not null,
  floor_patience     integer,           -- express claims in a row that may pass over other work; null: any number
  fair               boolean not null,
  has_sessions       boolean not null,
  lock_seconds       float8 not null,
  max_lock_age       float8,
  max_delivery_count integer not null,
  ttl                float8,
  dead_letter_ttl    float8,
  dead_letter_expired boolean not null,
  backoff_first      float8,
  backoff_factor     float8,
  backoff_longest    float8,
  backoff_low        float8,
  backoff_high       float8,
  forward_to         text,
  forward_dead_to    text,
  duplicate_window   float8,            -- null: ids are not remembered
  idle_seconds       float8,
  max_bytes          bigint,
  events             text not null check (events in ('none', 'dead', 'all'))
) with (fillfactor = 80);
create index message_entity_topic on relevo.message_entity (topic_id) where topic_id is not null;
create index message_entity_idle on relevo.message_entity (used_at) where idle_seconds is not null;

-- The classes of an entity. A number stays with a name, so that waiting messages keep their class when the list of
-- classes changes; one that is not in the list any more is `retired` and gets no new messages.
create table relevo.message_class (
  entity_id   integer not null references relevo.message_entity on delete cascade,
  number      smallint not null,
  name        text not null,
  low         smallint not null,         -- the band of its priorities
  high        smallint not null,
  base        smallint not null,
  weight      integer not null,
  slo         float8,
  rank_offset bigint not null,
  tier        smallint not null,        -- 0: express, by a policy that has tiers
  express     boolean not null default false,
  preempts    boolean not null,
  preemptible boolean not null,
  on_breach   text not null,
  retired     boolean not null default false,
  primary key (entity_id, number)
);

create table relevo.message_rule (
  entity_id  integer not null references relevo.message_entity on delete cascade,
  name       text not null,
  key        text collate "C" not null,  -- the name in lower case
  rule       json not null,              -- not jsonb, which makes whole numbers of large fractions
  created_at timestamptz not null default relevo.now(),
  primary key (entity_id, key)
);

create sequence relevo.message_sequence;

-- A message that waits or is held; completing it deletes the row. `state`: 0 claimable, 1 locked, 2 deferred, 3 deferred and
-- locked, 4 scheduled, 5 invisible until its time, 6 behind others of its session. `sub_queue`: 0 the entity itself, 1 its
-- dead-letter queue, 2 that of transfers. A lock is held by a host for as long as its life lasts (`host`), or by a receiver
-- until `locked_until`; its token is the sequence number and the number `token`, drawn once per claim.
create table relevo.message (
  sequence       bigint primary key default nextval('relevo.message_sequence'),
  rank           bigint not null,
  enqueued_at    timestamptz not null,
  enqueued_sequence bigint,              -- at the first entity of a chain of forwards; null: as sequence
  entity_id      integer not null,
  sub_queue      smallint not null default 0,
  class          smallint not null,
  state          smallint not null,
  priority       smallint not null,
  body_kind      smallint not null,      -- 0 bytes, 1 text, 2 JSON
  hops           smallint not null default 0,
  preempt_count  smallint not null default 0,
  preempt_asked  boolean not null default false,  -- its handler is to make room
  asks           boolean not null default false,  -- it waits, and a handler was asked to make room for it
  delivered      boolean not null default false,
  breached       boolean not null default false,
  delivery_count integer not null default 0,
  size           integer not null,
  token          bigint,
  claim          bigint,
  host           uuid,
  consumers      integer,
  locked_at      timestamptz,
  locked_until   timestamptz,
  visible_at     timestamptz,
  expires_at     timestamptz,
  ttl            float8,                 -- seconds to live from the arrival; of a scheduled message
  session        bigint,
  message_id     text not null,
  fairness_key   text collate "C",
  head           text,                   -- the other fields that the sender set, as JSON
  body           bytea not null,
  checkpoint     bytea,
  dead           text,                   -- why it is in a dead-letter queue, as JSON
  constraint message_held check ((token is not null) = (state in (1, 3)))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
create index message_claims on relevo.message (entity_id, sub_queue, class, rank, sequence) where state = 0;
create index message_places on relevo.message (entity_id, sub_queue, sequence);
create index message_hosts on relevo.message (host) where host is not null;
create index message_preempted on relevo.message (host) where preempt_asked;
create index message_asking on relevo.message (entity_id, sequence) where asks and state = 0;
create index message_locks on relevo.message (locked_until) where locked_until is not null;
create index message_due on relevo.message (visible_at) where state in (4, 5);
create index message_expiry on relevo.message (expires_at) where expires_at is not null and state in (0, 5, 6);
create index message_sessions on relevo.message (session, sequence) where session is not null;

-- What a caller's transaction has sent and nobody has accepted yet.
create table relevo.message_arrival (
  id             bigint generated always as identity primary key,
  entity_id      integer not null,
  sub_queue      smallint not null default 0,
  at             timestamptz not null default relevo.now(),
  priority       smallint,
  body_kind      smallint not null,
  hops           smallint not null default 0,
  enqueued_sequence bigint,
  ttl            float8,
  due_at         timestamptz,
  expires_at     timestamptz,             -- of a forwarded message, which keeps it
  priority_class text,
  message_id     text not null,
  session_id     text,
  fairness_key   text collate "C",
  head           text,
  body           bytea not null,
  dead           text
);
create index message_arrival_entity on relevo.message_arrival (entity_id, id);

-- Sessions with messages, a holder or state. Holder numbers only grow, so that an old holder is told from the present one.
create table relevo.message_session (
  id           bigint generated always as identity primary key,
  entity_id    integer not null,
  key          text collate "C" not null,
  holder       bigint not null default 0,
  held         boolean not null default false,
  host         uuid,
  locked_until timestamptz,
  updated_at   timestamptz not null default relevo.now(),
  state        bytea,
  unique (entity_id, key)
) with (fillfactor = 80);
create index message_session_hosts on relevo.message_session (host) where host is not null;
create index message_session_idle on relevo.message_session (updated_at) where not held and state is null;
create index message_session_locks on relevo.message_session (locked_until) where locked_until is not null;

-- Ids that were accepted, for entities that detect duplicates.
create table relevo.message_seen (
  entity_id  integer not null,
  message_id text collate "C" not null,
  until      timestamptz not null,
  primary key (entity_id, message_id)
);
create index message_seen_until on relevo.message_seen (until);

-- What claims of an entity leave for the next one; written only where a claim had a choice.
create table relevo.message_tally (
  entity_id   integer primary key references relevo.message_entity on delete cascade,
  express_run integer not null default 0,
  numbers     smallint[] not null default '{}',  -- of classes, with their virtual times and the largest tags claimed
  vtimes      bigint[] not null default '{}',
  tags        bigint[] not null default '{}'
) with (fillfactor = 50);

-- The last tag of each tenant, for entities that are fair between them.
create table relevo.message_fairness (
  entity_id  integer not null references relevo.message_entity on delete cascade,
  class      smallint not null,
  key        text collate "C" not null,
  last_tag   bigint not null,
  used_at    timestamptz not null,
  primary key (entity_id, class, key)
) with (fillfactor = 50);
create index message_fairness_used on relevo.message_fairness (used_at);

-- Consumers by name, as the hosts define them, and what operators have said.
create table relevo.message_consumers (
  id         integer generated always as identity primary key,
  name       text not null unique,
  definition jsonb not null,
  sources    integer[] not null,
  state      text not null default 'running' check (state in ('running', 'paused')),
  reason     text,
  until      timestamptz,
  passed     integer[] not null default '{}',  -- by source: what claims over several leave for the next one
  vtimes     bigint[] not null default '{}',
  served_at  timestamptz not null default relevo.now(),
  updated_at timestamptz not null default relevo.now()
) with (fillfactor = 50);

-- The hosts that serve consumers, with their slots. Rows of hosts that have ended count for nothing.
create table relevo.message_replica (
  consumers integer not null references relevo.message_consumers on delete cascade,
  host      uuid not null,
  slots     integer not null,
  since     timestamptz not null default relevo.now(),
  primary key (consumers, host)
);

-- Counters: each statement that moves messages adds a row of differences, which the leader folds into `message_count`. A
-- reader adds both up.
create table relevo.message_delta (
  entity_id     integer not null,
  sub_queue     smallint not null,
  class         smallint not null,
  active        integer not null default 0,  -- claimable, invisible or behind others of the session
  locked        integer not null default 0,
  deferred      integer not null default 0,
  scheduled     integer not null default 0,
  bytes         bigint not null default 0,
  sent          integer not null default 0,
  delivered     integer not null default 0,
  completed     integer not null default 0,
  abandoned     integer not null default 0,
  lock_lost     integer not null default 0,
  dead_lettered integer not null default 0,
  expired       integer not null default 0,
  preempted     integer not null default 0,
  in_target     integer not null default 0,
  out_of_target integer not null default 0,
  floor_claims  integer not null default 0,
  unrouted      integer not null default 0,
  filter_errors integer not null default 0,
  fairness_keys integer not null default 0  -- that are remembered, rows of `message_fairness`
);
alter table relevo.message_delta replica identity full;  -- it has no key
create table relevo.message_count (
  entity_id     integer not null references relevo.message_entity on delete cascade,
  sub_queue     smallint not null,
  class         smallint not null,
  active        bigint not null default 0,
  locked        bigint not null default 0,
  deferred      bigint not null default 0,
  scheduled     bigint not null default 0,
  bytes         bigint not null default 0,
  sent          bigint not null default 0,
  delivered     bigint not null default 0,
  completed     bigint not null default 0,
  abandoned     bigint not null default 0,
  lock_lost     bigint not null default 0,
  dead_lettered bigint not null default 0,
  expired       bigint not null default 0,
  preempted     bigint not null default 0,
  in_target     bigint not null default 0,
  out_of_target bigint not null default 0,
  floor_claims  bigint not null default 0,
  unrouted      bigint not null default 0,
  filter_errors bigint not null default 0,
  fairness_keys bigint not null default 0,
  primary key (entity_id, sub_queue, class)
) with (fillfactor = 50);

-- How many messages of a class there were lately: counts in which each message weighs less the longer ago it was, by the constants
-- 60, 300 and 900 s in this order, as in a load average. Divided by these they are messages a second. Written when counters are folded.
create table relevo.message_rate (
  entity_id integer not null references relevo.message_entity on delete cascade,
  class     smallint not null,
  at        timestamptz not null,  -- at which the counts were such; a reader lets them fade from there
  sent      float8[] not null,
  delivered float8[] not null,
  completed float8[] not null,
  primary key (entity_id, class)
) with (fillfactor = 50);

-- How long messages waited for their first delivery, in the same way: buckets that double, from a millisecond on.
create table relevo.message_wait_delta (
  entity_id integer not null,
  class     smallint not null,
  bucket    smallint not null,
  amount    integer not null
);
alter table relevo.message_wait_delta replica identity full;
create table relevo.message_wait (
  entity_id integer not null references relevo.message_entity on delete cascade,
  class     smallint not null,
  bucket    smallint not null,
  amount    bigint not null,
  primary key (entity_id, class, bucket)
) with (fillfactor = 50);

-- Settlements of receivers, for a minute: the same settlement again is answered with success.
create table relevo.message_settled (
  at        timestamptz not null default relevo.now(),
  sequences bigint[] not null,
  tokens    bigint[] not null,
  event     text not null
);
alter table relevo.message_settled replica identity full;
create index message_settled_at on relevo.message_settled (at);
create index message_settled_sequences on relevo.message_settled using gin (sequences);

-- What `relevo.claim_messages` answers: a claimed message with everything that a handler sees.
create type relevo.message_notice as (
  kind text, sequence bigint, token bigint, claim bigint, entity_id integer, sub_queue smallint, consumers integer,
  class smallint, priority smallint, body_kind smallint, delivery_count integer, preempt_count smallint,
  enqueued_at timestamptz, expires_at timestamptz, locked_until timestamptz, enqueued_sequence bigint,
  message_id text, fairness_key text, session_id text, head text, body bytea, checkpoint bytea, dead text);

-- What becomes of a held message; inside `relevo.move_messages`.
create type relevo.message_move as (
  sequence bigint, session bigint, event text, fate text, delivery_count integer, visible_at timestamptz, checkpoint bytea, dead text);
