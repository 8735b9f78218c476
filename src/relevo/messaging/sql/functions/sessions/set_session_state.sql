-- Stores the state of a session, none for null; it counts to what the entity may hold. Returns whether the holder still has it.
create or replace function relevo.set_session_state(p_session bigint, p_holder bigint, p_state bytea) returns boolean
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  session relevo.message_session := relevo.held_session(p_session, p_holder);
begin
  if session.id is null then return false; end if;
  update relevo.message_session s set state = p_state, updated_at = relevo.now() where s.id = p_session;
  insert into relevo.message_delta (entity_id, sub_queue, class, bytes)
  values (session.entity_id, 0, 0, coalesce(octet_length(p_state), 0) - coalesce(octet_length(session.state), 0));
  return true;
end $$;
