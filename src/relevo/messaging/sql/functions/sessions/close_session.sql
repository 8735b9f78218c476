-- Ends the hold on a session: its unsettled messages go back, uncounted, or counted as failed deliveries if the holder is gone
-- (`p_lost`). Returns whether the holder still had it.
create or replace function relevo.close_session(p_session bigint, p_holder bigint, p_lost boolean default false) returns boolean
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  session relevo.message_session;
begin
  perform relevo.lock_sessions(array[p_session]);
  session := relevo.held_session(p_session, p_holder);
  if session.id is null then return false; end if;
  perform relevo.free_sessions(array[p_session], p_lost);
  return true;
end $$;
