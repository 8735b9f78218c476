-- Gives a session of an entity to a holder: the one with this key, which may be empty, or for no key the one whose first message
-- is next by the order of the entity. A host (`p_host`) holds it for as long as it lives, another for the lock duration.
-- Returns no row if the session is held, or if none has a message that can be claimed.
create or replace function relevo.accept_session(p_entity integer, p_key text default null, p_host uuid default null)
returns table (session bigint, key text, holder bigint, locked_until timestamptz) language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  entity relevo.message_entity;
  found_id bigint;
begin
  select * into entity from relevo.message_entity e where e.id = p_entity and e.has_sessions and e.status in ('active', 'send_disabled');
  if not found then return; end if;
  found_id := case when p_key is null then relevo.next_session(entity) else relevo.session_by_key(p_entity, p_key) end;
  if found_id is null then return; end if;
  update relevo.message m set state = 6 where m.session = found_id and m.state = 0;
  return query
  update relevo.message_session s set held = true, holder = s.holder + 1, host = p_host, updated_at = relevo.now(),
    locked_until = case when p_host is null then relevo.now() + make_interval(secs => entity.lock_seconds) end
  where s.id = found_id
  returning s.id, s.key, s.holder, s.locked_until;
end $$;
