-- Users, teams and business units.
-- after: postgres

create table relevo.business_unit (
  id         uuid primary key default relevo.uuid7(),
  name       text not null unique,
  parent     uuid references relevo.business_unit,
  created_at timestamptz not null default relevo.now()
);

-- The unit of users and teams that are in no other.
insert into relevo.business_unit (id, name) values ('00000000-0000-7000-8000-000000000001', 'organization');

create table relevo.system_user (
  id         uuid primary key default relevo.uuid7(),
  name       text not null,
  identity   text collate "C" unique,   -- external identity: `oidc:` and the subject of its tokens
  unit       uuid not null default '00000000-0000-7000-8000-000000000001' references relevo.business_unit,
  language   text not null default 'en',
  zone       text not null default 'UTC',
  zone_code  integer default 92,         -- Dataverse's number for the zone
  disabled   boolean not null default false,
  created_at timestamptz not null default relevo.now()
);
create index system_user_units on relevo.system_user (unit);

-- The user of Relevo's own work, and the owner of rows without another owner.
insert into relevo.system_user (id, name) values ('00000000-0000-7000-8000-000000000002', 'SYSTEM');

create table relevo.team (
  id         uuid primary key default relevo.uuid7(),
  name       text not null unique,
  unit       uuid not null default '00000000-0000-7000-8000-000000000001' references relevo.business_unit,
  created_at timestamptz not null default relevo.now()
);

create table relevo.team_member (
  team   uuid not null references relevo.team on delete cascade,
  member uuid not null references relevo.system_user on delete cascade,
  primary key (team, member)
);
create index team_members on relevo.team_member (member);

-- Users and teams, which can own rows. `system_user` is a word of SQL since PostgreSQL 16: without `u`, a dump of 15 could not be restored there.
create view relevo.owner as
  select u.id, u.name, u.unit, 'systemuser' as kind from relevo.system_user u
  union all
  select id, name, unit, 'team' from relevo.team;
