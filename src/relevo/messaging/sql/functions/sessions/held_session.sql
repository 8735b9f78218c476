-- The session, locked, if this holder still has it; else a row of nulls.
create or replace function relevo.held_session(p_session bigint, p_holder bigint) returns relevo.message_session language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  session relevo.message_session;
begin
  select * into session from relevo.message_session s
  where s.id = p_session and s.held and s.holder = p_holder and (s.locked_until is null or s.locked_until > relevo.now())
    and (s.host is null or exists (select from relevo.host h where h.incarnation = s.host and h.ended_at is null))
  for no key update of s;
  return session;
end $$;
