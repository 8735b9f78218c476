-- name: server_settings
-- PostgreSQL's settings in this session.
select name, setting from pg_settings;

-- name: has_schema
-- Whether Relevo's tables exist; read from the catalogue, because a role without rights cannot name them.
select exists (
  select from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'relevo' and c.relname = 'setting');

-- name: missing_rights
-- The rights on Relevo's tables, sequences and functions that a host needs and this role lacks.
select p.privilege, c.relname as name
from pg_class c join pg_namespace n on n.oid = c.relnamespace
cross join unnest(array['select', 'insert', 'update', 'delete']) as p (privilege)
where n.nspname = 'relevo' and c.relkind in ('r', 'p') and not c.relispartition
  and (p.privilege = 'select' or c.relname <> all ($1::text[]))
  and not (has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, p.privilege))
union all
select 'usage', c.relname
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'relevo' and c.relkind = 'S'
  and not (has_schema_privilege(n.oid, 'usage') and has_sequence_privilege(c.oid, 'usage'))
union all
select 'execute', f.proname
from pg_proc f join pg_namespace n on n.oid = f.pronamespace
where n.nspname = 'relevo'
  and not (has_schema_privilege(n.oid, 'usage') and has_function_privilege(f.oid, 'execute'))
order by 2, 1;

-- name: role_rights
-- The role of this session, the owner of the schema, and which roles of `relevo grants` it fits.
select current_user as role, has_database_privilege(current_database(), 'create') as may_create,
  pg_get_userbyid(n.nspowner) as owner, coalesce(pg_has_role(n.nspowner, 'usage'), false) as owns,
  coalesce(has_schema_privilege(n.oid, 'usage') and (
    select bool_and(has_function_privilege(f.oid, 'execute')) from pg_proc f
    where f.pronamespace = n.oid and f.proname = any ($1::text[])), false) as submits,
  coalesce(has_schema_privilege(n.oid, 'usage') and (
    select bool_and(has_table_privilege(c.oid, 'select')) from pg_class c
    where c.relnamespace = n.oid and c.relkind = 'v' and c.relname like 'report\_%'), false) as reads
from (select) as one left join pg_namespace n on n.nspname = 'relevo';

-- name: count_connections
-- The number of client connections of the server.
select count(*) from pg_stat_activity where backend_type = 'client backend';

-- name: count_leases
-- The number of leases, and of those that are free, paused or blocked.
select count(*) as leases,
       count(*) filter (where owner is null and state = 'active') as free,
       count(*) filter (where state = 'paused') as paused,
       count(*) filter (where state = 'blocked') as blocked
from relevo.lease;

-- name: count_work
-- The number of live hosts, and the highest number of feed leases of a host.
select (select count(*) from relevo.host where ended_at is null and lease_until > relevo.now()) as hosts,
       coalesce((select max(held.leases) from (
         select count(*) as leases from relevo.lease l join relevo.unit u on u.id = l.unit_id
         where u.kind = 'feed' and l.owner is not null group by l.owner) held), 0) as leases;

-- name: ping
-- One round trip.
select 1;

-- name: actor_groups
-- The placement groups of actors and their slots.
select name, slots from relevo.actor_group order by slots desc, name;

-- name: actor_members
-- The live hosts that serve placement groups of actors, and where they take calls.
select u.name as placement_group, h.name as host, m.address
from relevo.unit u join relevo.member m on m.unit_id = u.id join relevo.host h on h.incarnation = m.host
where u.kind = 'actors' and h.ended_at is null and h.lease_until > relevo.now() order by u.name, h.name;
