-- Users, teams and business units.

-- name: user_by_id
-- A user with its teams, and the time.
select u.id, u.name, u.unit, u.language, u.zone, u.disabled, relevo.now() as now,
  array(select m.team from relevo.team_member m where m.member = u.id order by m.team) as teams
from relevo.system_user u where u.id = $1;

-- name: user_by_identity
-- Which user somebody is who is known elsewhere.
select id from relevo.system_user where identity = $1;

-- name: add_identity
-- A user for somebody who comes for the first time; who came at the same time is kept.
insert into relevo.system_user (identity, name) values ($1, $2) on conflict (identity) do nothing;

-- name: add_user
-- A new user.
insert into relevo.system_user (id, name, unit, language, zone) values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001'), $4, $5)
on conflict (id) do nothing;

-- name: add_team
-- A new team.
insert into relevo.team (id, name, unit) values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001')) on conflict (id) do nothing;

-- name: add_unit
-- A new business unit.
insert into relevo.business_unit (id, name, parent) values ($1, $2, coalesce($3::uuid, '00000000-0000-7000-8000-000000000001'))
on conflict (id) do nothing;

-- name: add_member
-- A user joins a team.
insert into relevo.team_member (team, member) values ($1, $2) on conflict do nothing;

-- name: remove_member
-- A user leaves a team.
delete from relevo.team_member where team = $1 and member = $2;

-- name: move_user
-- A user goes to another business unit.
update relevo.system_user set unit = $2 where id = $1 returning id;

-- name: set_disabled
-- A user may not come in any more, or may again.
update relevo.system_user set disabled = $2 where id = $1 returning id;

-- name: new_id
-- A new key, so that a write whose fate is unknown can be repeated.
select relevo.uuid7();
