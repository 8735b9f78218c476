-- Whether hosts have served this very database so far, as far as its recorded identity says; null if none has.
create or replace function relevo.is_served_database() returns boolean language sql stable
set search_path = pg_catalog, pg_temp as $$
  select not exists (
    select from jsonb_each(s.value -> 'identity') recorded join jsonb_each(relevo.database_identity()) here using (key)
    where recorded.value <> here.value)
  from relevo.setting s where s.key = 'database'
$$;
