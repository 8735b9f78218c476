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

-- Events as they were appended: a row for each stripe of an append, with up to 250 events. What an event costs is its values,
-- not a row and an index entry. An array of types or schemas with one element holds for all events. `data` is JSON: an array
-- with a body for each event, or an object of columns, in which an array has a value for each event and anything else holds for
-- all; null stands for a member that an event does not have. LSNs and versions stay in the row, for queries that look at nothing else.
create table relevo.event_batch (
  stripe   integer not null,
  last     bigint not null,
  at       timestamptz not null,
  lsns     bigint[] not null,
  types    text[] collate "C" not null,
  schemas  smallint[] not null,
  subjects text[] collate "C" not null,
  versions bigint[] not null,
  data     text not null
) partition by range (at);
alter table relevo.event_batch
  replica identity full,
  alter column lsns set storage plain,
  alter column versions set storage plain,
  alter column types set storage external,
  alter column subjects set storage external,
  alter column data set storage external;
create index event_feed on relevo.event_batch (stripe, last);

-- The log with a row for each event, for reports and for queries of few events. `batch` is the last LSN of the event's batch:
-- a condition on it finds batches by the index.
create view relevo.event as
select u.lsn, u.version, b.at, b.stripe, b.schemas[least(u.n, cardinality(b.schemas))] as schema,
       b.types[least(u.n, cardinality(b.types))] as type, u.subject, u.data, b.last as batch
from relevo.event_batch b
cross join lateral rows from (
  unnest(b.lsns), unnest(b.versions), unnest(b.subjects),
  json_array_elements(case when b.data like '[%' then b.data::json else (
    select json_agg(bodies.body order by bodies.n)
    from (
      select v.n, coalesce(json_object_agg(c.key, m.value) filter (where json_typeof(m.value) <> 'null'), '{}') as body
      from json_each(b.data::json) as c
      cross join lateral rows from (
        generate_series(1, cardinality(b.lsns)),
        json_array_elements(case when json_typeof(c.value) = 'array' then c.value else '[]' end)) as v (n, own)
      cross join lateral (select case when json_typeof(c.value) = 'array' then v.own else c.value end as value) as m
      group by v.n) as bodies) end)
) with ordinality as u (lsn, version, subject, data, n);

-- Partitions follow each other without a gap; one goes as a whole when all of it is too old.
create table relevo.event_partition (
  low        timestamptz primary key,
  high       timestamptz not null check (low < high),
  name       text not null unique,
  trimmed_at timestamptz
);

-- Time to position: an LSN below those of all events from an instant on, about every minute.
create table relevo.event_time (
  at  timestamptz primary key,
  lsn bigint not null
);

\ir functions/make_event_partition.sql
select relevo.make_event_partition(relevo.now());
