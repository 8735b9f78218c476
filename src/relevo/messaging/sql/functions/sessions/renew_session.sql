-- Renews the lock of a session and with it those of its messages; returns its new end (none for hosts, whose life is the end), or
-- no row if the holder has lost it.
create or replace function relevo.renew_session(p_session bigint, p_holder bigint) returns table (locked_until timestamptz)
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  session relevo.message_session := relevo.held_session(p_session, p_holder);
  until timestamptz;
begin
  if session.id is null then return; end if;
  if session.host is null then
    until := relevo.now() + make_interval(secs => e.lock_seconds) from relevo.message_entity e where e.id = session.entity_id;
    update relevo.message_session s set locked_until = until where s.id = p_session;
    update relevo.message m set locked_until = until where m.session = p_session and m.state in (1, 3);
  end if;
  return query select until;
end $$;
