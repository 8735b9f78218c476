-- Notes that entities are in use, for those that are deleted when they are idle.
create or replace function relevo.note_use(p_entities integer[]) returns void language sql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
  update relevo.message_entity e set used_at = relevo.now()
  where e.id in (
    select u.id from relevo.message_entity u
    where u.id = any (p_entities) and u.idle_seconds is not null and u.used_at < relevo.now() - interval '10 seconds'
    order by u.id for update skip locked);
$$;
