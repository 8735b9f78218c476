-- The session of an entity with a key, locked, if nobody holds it; it is made if there is none. A holder whose lock has expired has
-- lost it.
create or replace function relevo.session_by_key(p_entity integer, p_key text) returns bigint language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  session relevo.message_session;
begin
  perform pg_advisory_xact_lock(1380273170, hashtext(p_entity || ' ' || p_key));
  insert into relevo.message_session (entity_id, key) values (p_entity, p_key) on conflict (entity_id, key) do nothing;
  select * into session from relevo.message_session s where s.entity_id = p_entity and s.key = p_key for update;
  if not session.held then return session.id; end if;
  if session.locked_until <= relevo.now() or session.host = any (relevo.lost_hosts()) then
    perform relevo.free_sessions(array[session.id], true);
    return session.id;
  end if;
  return null;
end $$;
