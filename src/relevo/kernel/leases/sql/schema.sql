-- Hosts, units, their members and leases.
-- after: postgres

create table relevo.host (
  incarnation uuid primary key,
  name        text not null,
  lease_until timestamptz not null,
  started_at  timestamptz not null,
  ended_at    timestamptz,
  end_reason  text check (end_reason in ('stopped', 'lapsed', 'superseded')),
  draining    boolean not null default false,
  address     text,
  labels      jsonb not null default '{}',
  version     text not null,
  check ((ended_at is null) = (end_reason is null))
) with (fillfactor = 50);
create unique index host_name on relevo.host (name) where ended_at is null;

-- When each host last saw a write reach the disk.
create table relevo.write_probe (
  host uuid primary key references relevo.host on delete cascade,
  at   timestamptz not null
) with (fillfactor = 50);

create table relevo.unit (
  id              integer generated always as identity primary key,
  kind            text not null,
  name            text not null,
  strict          boolean not null,
  handoff_timeout interval not null,
  max_moves       integer,
  rest            interval not null,
  strategy        text not null default 'equal' check (strategy in ('equal', 'load')),
  unique (kind, name)
);

create table relevo.member (
  unit_id    integer not null references relevo.unit on delete cascade,
  host       uuid not null references relevo.host on delete cascade,
  weight     double precision not null default 1 check (weight > 0 and weight < 'infinity'),
  min_leases integer not null default 0,
  max_leases integer,
  draining   boolean not null default false,
  joined_at  timestamptz not null default relevo.now(),
  -- Where the host takes what is for its leases of this unit, if that comes from other hosts.
  address    text,
  primary key (unit_id, host)
);
create index member_host on relevo.member (host);

create table relevo.lease (
  id            integer generated always as identity primary key,
  unit_id       integer not null references relevo.unit on delete cascade,
  name          text not null,
  owner         uuid references relevo.host,
  epoch         bigint not null default 0,
  position      jsonb not null default '{}',
  state         text not null default 'active' check (state in ('active', 'paused', 'blocked')),
  handoff_to    uuid,
  handoff_until timestamptz,
  free_since    timestamptz default relevo.now(),
  moved_at      timestamptz,
  clean         boolean not null default true,
  -- The epoch after the last owner that did not let go in order: what came from it or before it came too late.
  in_order_from bigint not null default 0,
  -- What its owner measured, smoothed over windows of 10 s. Zero in an idle unit, where nobody writes.
  busy          double precision not null default 0,
  changes_s     double precision not null default 0,
  bytes_s       double precision not null default 0,
  avoid         uuid,
  avoid_until   timestamptz,
  unique (unit_id, name),
  check ((avoid is null) = (avoid_until is null)),
  check ((handoff_to is null) = (handoff_until is null)),
  check ((owner is null) = (free_since is not null))
) with (fillfactor = 70);
create index lease_owner on relevo.lease (owner) where owner is not null;

\ir functions/guard_lease.sql
create trigger guard_lease before update of owner, epoch on relevo.lease
  for each row execute function relevo.guard_lease();

-- For reports: hosts that serve or served, and who owns which lease.
create view relevo.report_host as
  select name, started_at, lease_until, ended_at, end_reason, draining, address, version from relevo.host;
create view relevo.report_lease as
  select u.kind, u.name as unit, l.name as lease, h.name as host, l.state, l.epoch, l.free_since, l.moved_at
  from relevo.lease l join relevo.unit u on u.id = l.unit_id left join relevo.host h on h.incarnation = l.owner;
