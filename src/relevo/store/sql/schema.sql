-- Containers of items, their feed ranges, all versions, and writes in callers' transactions.
-- after: leases

\ir functions/etag.sql

-- Positions of commit groups. One sequence for all containers; only its order within a range counts,
-- and that is kept because a range's stamp lock is held from the draw to the end of the transaction.
create sequence relevo.lsn as bigint cache 1;

create table relevo.container (
  id              integer generated always as identity primary key,
  name            text not null unique,
  incarnation     uuid not null default gen_random_uuid(),
  partition_key   text[] not null check (cardinality(partition_key) between 1 and 3),
  default_ttl     integer check (default_ttl = -1 or default_ttl > 0),
  retention       interval check (retention > '0'),
  previous_images boolean not null default false,
  versions_since  bigint,
  created_at      timestamptz not null default relevo.now()
);

-- Items of a dropped container are removed in the background, in batches.
create table relevo.dropped_container (
  id         integer primary key,
  ranges     integer[] not null,
  dropped_at timestamptz not null default relevo.now()
);

create table relevo.feed_range (
  id           integer generated always as identity primary key,
  container_id integer not null references relevo.container on delete cascade,
  epk_min      text collate "C" not null,
  epk_max      text collate "C" not null check (epk_min < epk_max),
  parents      integer[] not null default '{}',
  sealed_lsn   bigint,
  trimmed_lsn  bigint not null default 0
);
create index feed_range_container on relevo.feed_range (container_id);

create table relevo.item (
  container_id integer not null,
  range_id     integer not null,
  ordinal      integer not null,
  lsn          bigint not null,
  ts           timestamptz not null,
  expires_at   timestamptz,
  pk           text collate "C" not null,
  id           text collate "C" not null,
  epk          text collate "C" not null,
  body         jsonb not null,
  primary key (container_id, pk, id)
) with (fillfactor = 90);
create index item_feed on relevo.item (range_id, lsn, ordinal);
create index item_expiry on relevo.item (expires_at) where expires_at is not null;

-- All versions and deletes, for containers that keep them.
create table relevo.item_version (
  container_id integer not null,
  range_id     integer not null,
  ordinal      integer not null,
  lsn          bigint not null,
  previous_lsn bigint,
  ts           timestamptz not null,
  operation    text not null check (operation in ('create', 'replace', 'delete')),
  ttl_expired  boolean not null default false,
  pk           text collate "C" not null,
  id           text collate "C" not null,
  epk          text collate "C" not null,
  body         jsonb,
  previous     jsonb
);
-- It has no key, for what is not stamped yet has no place; replication goes by whole rows.
alter table relevo.item_version replica identity full;
create index item_version_feed on relevo.item_version (range_id, lsn, ordinal);

-- Time to position: the first LSN of each second in which a range was written.
create table relevo.feed_time (
  range_id integer not null references relevo.feed_range on delete cascade,
  at       timestamptz not null,
  lsn      bigint not null,
  primary key (range_id, at)
);

-- One row per transaction and range: its deferred trigger stamps at commit, so that a caller that
-- idles between write and commit does not hold up its range. No row outlives its transaction, so none
-- needs a log.
create unlogged table relevo.stamp_request (
  xid           xid8 not null default pg_current_xact_id(),
  range_id      integer not null,
  with_versions boolean not null,
  primary key (xid, range_id)
);

\ir functions/stamp.sql
create constraint trigger stamp after insert on relevo.stamp_request
  deferrable initially deferred for each row execute function relevo.stamp();
