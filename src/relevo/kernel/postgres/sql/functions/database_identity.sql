-- Which database this is: the server's identifier, the database and the schema. A schema that was restored or
-- copied has another identity; after a failover it is the same. Some vendors hide the server's identifier.
create or replace function relevo.database_identity() returns jsonb language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
  here constant jsonb := jsonb_build_object(
    'database', (select d.oid::text from pg_database d where d.datname = current_database()),
    'schema', (select n.oid::text from pg_namespace n where n.nspname = 'relevo'));
begin
  return here || jsonb_build_object('server', (select c.system_identifier::text from pg_control_system() c));
exception when insufficient_privilege or undefined_function or feature_not_supported then
  return here;
end $$;
