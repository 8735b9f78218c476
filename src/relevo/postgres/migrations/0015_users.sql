-- description: users, teams and business units; every access key belongs to a user
-- locks: relevo.access_key for a moment: a column is added and filled, one row for each key

create table relevo.business_unit (
  id         uuid primary key default relevo.uuid7(),
  name       text not null unique,
  parent     uuid references relevo.business_unit,
  created_at timestamptz not null default relevo.now()
);
-- The unit of all who are in no other.
insert into relevo.business_unit (id, name) values ('00000000-0000-7000-8000-000000000001', 'organization');

create table relevo.system_user (
  id         uuid primary key default relevo.uuid7(),
  name       text not null,
  identity   text collate "C" unique,   -- who it is elsewhere: `oidc:` and the subject of its tokens
  unit       uuid not null default '00000000-0000-7000-8000-000000000001' references relevo.business_unit,
  language   text not null default 'en',
  zone       text not null default 'UTC',
  disabled   boolean not null default false,
  created_at timestamptz not null default relevo.now()
);
create index system_user_units on relevo.system_user (unit);
-- Who does what nobody asked for, and whose is what nobody owns.
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

-- Everybody who can own a row.
create view relevo.owner as
  select id, name, unit, 'systemuser' as kind from relevo.system_user
  union all
  select id, name, unit, 'team' from relevo.team;

alter table relevo.access_key add column user_id uuid references relevo.system_user;

-- A key that names no user gets one of its own, also from a program that knows nothing of users yet.
create function relevo.give_key_a_user() returns trigger language plpgsql as $$
begin
  insert into relevo.system_user (name) values (new.name) returning id into new.user_id;
  return new;
end $$;
create trigger access_key_user before insert on relevo.access_key
  for each row when (new.user_id is null) execute function relevo.give_key_a_user();

with made as (
  select k.id as key, k.name, relevo.uuid7() as id from relevo.access_key k
), users as (
  insert into relevo.system_user (id, name) select id, name from made
)
update relevo.access_key k set user_id = made.id from made where made.key = k.id;
alter table relevo.access_key alter column user_id set not null;
