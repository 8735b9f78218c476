-- The event log: its stripes, and events by day.
-- after: store

create table relevo.event_log (
  one            boolean primary key default true check (one),
  incarnation    uuid not null default gen_random_uuid(),
  kept           interval not null default '7 days' check (kept > '0'),
  trimmed_before timestamptz
);
insert into relevo.event_log default values;

-- A stripe is to the log what a range is to a container: an order of its own, under a stamp lock of
-- its own. 16 are shared by subjects, 16 by writing pipelines, so that neither waits for the other.
-- The ids are above those of all ranges, so that stamp locks in rising order take those of the log last.
create table relevo.event_stripe (
  id          integer primary key,
  kind        text not null check (kind in ('subject', 'pipeline')),
  trimmed_lsn bigint not null default 0
);
insert into relevo.event_stripe (id, kind)
select 2147480000 + n, case when n < 16 then 'subject' else 'pipeline' end from generate_series(0, 31) as n;

-- No key and one index: what an event costs is one row and one entry at the right edge of its stripe.
create table relevo.event (
  lsn     bigint not null,
  version bigint not null,
  at      timestamptz not null,
  stripe  integer not null,
  schema  smallint not null,
  type    text collate "C" not null,
  subject text collate "C" not null,
  data    json not null
) partition by range (at);
alter table relevo.event replica identity full;
create index event_feed on relevo.event (stripe, lsn);

-- Partitions follow each other without a gap; one goes as a whole when all of it is too old.
create table relevo.event_partition (
  low        timestamptz primary key,
  high       timestamptz not null check (low < high),
  name       text not null unique,
  trimmed_at timestamptz
);

-- Time to position: an LSN below all that a stripe got in a minute, and above all that it had before.
create table relevo.event_time (
  stripe integer not null,
  at     timestamptz not null,
  lsn    bigint not null,
  primary key (stripe, at)
);

\ir functions/make_event_partition.sql
select relevo.make_event_partition(relevo.now());
