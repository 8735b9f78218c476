-- Users, teams and business units.

-- name: user_by_id
-- A user with its teams, and the time.
select u.id, u.name, u.unit, u.language, u.zone, u.disabled, relevo.now() as now,
  array(select m.team from relevo.team_member m where m.member = u.id order by m.team) as teams
from relevo.system_user u where u.id = $1;

-- name: list_users
-- One page of users after the given one, in the order of their ids, that is of their creation: all, or those of a unit, a team or a name, or a single one.
select u.id, u.name, u.unit, b.name as unit_name, u.language, u.zone, u.disabled, u.created_at
from relevo.system_user u join relevo.business_unit b on b.id = u.unit
where ($1::uuid is null or u.id > $1)
  and ($3::uuid is null or u.unit = $3)
  and ($4::uuid is null or exists (select from relevo.team_member m where m.team = $4 and m.member = u.id))
  and ($5::text is null or u.name = $5)
  and ($6::uuid is null or u.id = $6)
order by u.id
limit $2;

-- name: teams_of_user
-- The teams of a user.
select t.id, t.name from relevo.team_member m join relevo.team t on t.id = m.team where m.member = $1 order by t.name;

-- name: roles_of_user
-- The roles and single rights of a user's valid keys; none if the user is disabled. Keys limited to resources are left
-- out, because their rights apply only to those resources.
select distinct r.role
from relevo.system_user u join relevo.access_key k on k.user_id = u.id cross join unnest(k.roles) as r (role)
where u.id = $1 and not u.disabled and k.revoked_at is null and (k.expires_at is null or k.expires_at > relevo.now())
  and k.scopes = '{}' and not exists (select from unnest(k.roles) as w (role) where w.role like 'worker:%');

-- name: list_teams
-- One page of teams after the given one, in the order of their creation; or a single one.
select t.id, t.name, t.unit, b.name as unit_name, t.created_at,
  (select count(*) from relevo.team_member m where m.team = t.id) as members
from relevo.team t join relevo.business_unit b on b.id = t.unit
where ($1::uuid is null or t.id > $1) and ($3::uuid is null or t.id = $3)
order by t.id
limit $2;

-- name: list_units
-- One page of business units after the given one, in the order of their creation; or a single one.
select id, name, parent, created_at from relevo.business_unit
where ($1::uuid is null or id > $1) and ($3::uuid is null or id = $3)
order by id
limit $2;

-- name: user_by_identity
-- The user of an external identity.
select id from relevo.system_user where identity = $1;

-- name: add_identity
-- Adds a user for an external identity, unless another process has just done so.
insert into relevo.system_user (identity, name) values ($1, $2) on conflict (identity) do nothing;

-- name: add_user
-- Adds a user.
insert into relevo.system_user (id, name, unit, language, zone, zone_code)
values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001'), $4, $5, $6)
on conflict (id) do nothing;

-- name: add_team
-- Adds a team.
insert into relevo.team (id, name, unit) values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001')) on conflict (id) do nothing;

-- name: add_unit
-- Adds a business unit.
insert into relevo.business_unit (id, name, parent) values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001'))
on conflict (id) do nothing;

-- name: add_member
-- Adds a user to a team.
insert into relevo.team_member (team, member) values ($1, $2) on conflict do nothing;

-- name: remove_member
-- Removes a user from a team.
delete from relevo.team_member where team = $1 and member = $2;

-- name: move_user
-- Moves a user to another business unit.
update relevo.system_user set unit = $2 where id = $1 returning id;

-- name: set_disabled
-- Disables or enables a user.
update relevo.system_user set disabled = $2 where id = $1 returning id;

-- name: new_id
-- A new id, so that a write with an unknown outcome can be repeated.
select relevo.uuid7();
