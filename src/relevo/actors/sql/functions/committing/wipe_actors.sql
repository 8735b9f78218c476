-- Removes what deleted actors had. Messages to them stay: fresh actors of their ids handle those.
create or replace function relevo.wipe_actors(ids text[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
  delete from relevo.actor_entry where actor = any (ids);
  delete from relevo.actor_reminder where actor = any (ids);
  delete from relevo.actor_call where actor = any (ids);
end $$;
