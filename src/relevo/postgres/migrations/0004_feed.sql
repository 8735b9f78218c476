-- description: units of the change feed processor and what their leases add
-- locks: nothing that exists; all objects are new

create table relevo.feed_unit (
  unit_id               integer primary key references relevo.unit on delete cascade,
  container_id          integer not null,
  container_incarnation uuid not null,
  mode                  text not null check (mode in ('latest', 'all_versions')),
  start                 jsonb not null,
  settings              jsonb not null,
  generation            integer not null default 1
);

create table relevo.feed_lease (
  lease_id      integer primary key references relevo.lease on delete cascade,
  epk_min       text collate "C" not null,
  epk_max       text collate "C" not null check (epk_min < epk_max),
  checkpoint_at timestamptz,
  position_ts   timestamptz,
  attempts      integer not null default 0,
  failing       text
);
