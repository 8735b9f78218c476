-- name: server_settings
-- PostgreSQL's settings as this session has them.
select name, setting from pg_settings;

-- name: has_schema
-- Whether Relevo's tables are there; by the catalogue, for a role without rights may not ask by name.
select exists (
  select from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'relevo' and c.relname = 'setting');

-- name: missing_rights
-- What this role may not do with our tables and would have to.
select p.privilege, c.relname
from pg_class c join pg_namespace n on n.oid = c.relnamespace
cross join unnest(array['select', 'insert', 'update', 'delete']) as p (privilege)
where n.nspname = 'relevo' and c.relkind = 'r'
  and not (has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, p.privilege))
order by c.relname;

-- name: who_am_i
-- The role of this session, and whether it may make a schema.
select current_user as role, has_database_privilege(current_database(), 'create') as may_create;

-- name: count_connections
-- How many connections the server has, whosever they are.
select count(*) from pg_stat_activity where backend_type = 'client backend';

-- name: count_leases
-- How many leases there are, and how many of them nobody works on.
select count(*) as leases,
       count(*) filter (where owner is null and state = 'active') as free,
       count(*) filter (where state = 'paused') as paused,
       count(*) filter (where state = 'blocked') as blocked
from relevo.lease;

-- name: count_work
-- How many hosts live, and the most feed leases that one of them holds.
select (select count(*) from relevo.host where ended_at is null and lease_until > relevo.now()) as hosts,
       coalesce((select max(held.leases) from (
         select count(*) as leases from relevo.lease l join relevo.unit u on u.id = l.unit_id
         where u.kind = 'feed' and l.owner is not null group by l.owner) held), 0) as leases;

-- name: delete_unit
-- Takes a unit away with its leases; only the demo does that, with its own.
delete from relevo.unit where kind = $1 and name = $2;

-- name: ping
-- One round trip.
select 1;
