-- Units of the change feed processor, additions to their leases, and dead letters.
-- after: leases

create table relevo.feed_unit (
  unit_id               integer primary key references relevo.unit on delete cascade,
  container_id          integer not null,
  container_incarnation uuid not null,
  mode                  text not null check (mode in ('latest', 'all_versions', 'events')),
  start                 jsonb not null,
  settings              jsonb not null,
  generation            integer not null default 1,
  until                 jsonb,  -- LSN by range up to which the hosts of the present run read; null is without end
  -- How much longer versions are kept for a unit that has not read them: seconds, or bytes per range.
  hold_seconds          double precision check (hold_seconds > 0),
  hold_bytes            bigint check (hold_bytes > 0),
  block_keys            boolean not null default false  -- whether a dead letter blocks its key
);

-- `isolation` is the state of relevo.feed.isolation, and `at` in it the position that it belongs to:
-- a lease that was rewound since has no trouble. `crash_epoch` makes counting a loss repeatable.
-- `cleared` is, by range, up to where trimming found nothing unread of this lease: its position may
-- be older than that, since it is written only when something moved it. A stall is that of an epoch.
create table relevo.feed_lease (
  lease_id       integer primary key references relevo.lease on delete cascade,
  epk_min        text collate "C" not null,
  epk_max        text collate "C" not null check (epk_min < epk_max),
  checkpoint_at  timestamptz,
  position_ts    timestamptz,
  attempts       integer not null default 0,
  failing        text,
  failing_since  timestamptz,
  isolation      jsonb,
  crashes        integer not null default 0,
  crash_position jsonb,
  crash_epoch    bigint,
  properties     jsonb not null default '{}',
  cleared        jsonb not null default '{}',
  stalled_since  timestamptz,
  stalled_epoch  bigint
);

-- Where a unit stood: places in the open ranges, so that it fits whatever leases the unit has later.
create table relevo.feed_snapshot (
  unit_id    integer not null references relevo.unit on delete cascade,
  name       text not null,
  taken_at   timestamptz not null default relevo.now(),
  generation integer not null,
  places     jsonb not null,
  primary key (unit_id, name)
);

-- Lanes and late confirmations finish changes in another order than they are read in. What lies above
-- the position stands here, so that the next owner skips it; it goes when the position has passed it.
create table relevo.feed_done (
  lease_id integer not null references relevo.lease on delete cascade,
  range_id integer not null,
  lsn      bigint not null,
  ordinal  integer not null,
  primary key (lease_id, range_id, lsn, ordinal)
);

-- A parked change waits behind a dead letter of its key; while a key has a letter that blocks, later
-- changes are parked. The order of a key is that of the log: (lsn, ordinal).
create table relevo.dead_letter (
  id              bigint generated always as identity primary key,
  unit_id         integer not null references relevo.unit on delete cascade,
  token           text not null,
  incarnation     uuid not null,
  range_id        integer not null,
  lsn             bigint not null,
  ordinal         integer not null,
  ts              timestamptz not null,
  pk              text collate "C" not null,
  item_id         text collate "C" not null,
  operation       text,
  body            jsonb,
  previous        jsonb,
  previous_lsn    bigint,
  ttl_expired     boolean not null default false,
  reason          text not null check (reason in ('failed', 'crash', 'parked')),
  error_type      text not null,
  message         text not null,
  traceback       text not null,
  attempts        integer not null,
  first_failed_at timestamptz not null,
  last_failed_at  timestamptz not null,
  instance        text not null,
  handler         text not null,
  claimed_by      uuid,
  claimed_until   timestamptz,
  blocks          boolean not null default false,
  unique (unit_id, range_id, lsn, ordinal),
  check ((claimed_by is null) = (claimed_until is null))
);
create index dead_letter_unit on relevo.dead_letter (unit_id, id);
create index dead_letter_key on relevo.dead_letter (unit_id, pk, lsn, ordinal);
create index dead_letter_blocks on relevo.dead_letter (unit_id, pk) where blocks;

-- For reports: changes that could not be handled, without the items.
create view relevo.report_dead_letter as
  select d.id, u.name as unit, d.pk, d.item_id, d.reason, d.error_type, d.message, d.attempts, d.first_failed_at, d.last_failed_at
  from relevo.dead_letter d join relevo.unit u on u.id = d.unit_id;
