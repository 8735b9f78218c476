-- description: trouble of feed leases (failed batches in parts, crashes) and dead letters
-- locks: feed_lease for a moment; new columns without rewriting it

-- `isolation` is the state of relevo.feed.isolation, and `at` in it the position that it belongs to:
-- a lease that was rewound since has no trouble. `crash_epoch` makes counting a loss repeatable.
alter table relevo.feed_lease
  add column failing_since  timestamptz,
  add column isolation      jsonb,
  add column crashes        integer not null default 0,
  add column crash_position jsonb,
  add column crash_epoch    bigint;

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
  reason          text not null check (reason in ('failed', 'crash')),
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
  unique (unit_id, range_id, lsn, ordinal),
  check ((claimed_by is null) = (claimed_until is null))
);
create index dead_letter_unit on relevo.dead_letter (unit_id, id);
create index dead_letter_key on relevo.dead_letter (unit_id, pk, lsn, ordinal);
