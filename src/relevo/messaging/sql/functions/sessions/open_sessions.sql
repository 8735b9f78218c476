-- Makes the first message of each session claimable, if nobody holds the session and the message is not invisible. The caller has
-- locked the sessions by `relevo.lock_sessions`.
create or replace function relevo.open_sessions(p_sessions bigint[]) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  update relevo.message m set state = 0
  from (
    select h.sequence from relevo.message_session s cross join lateral (
      select w.sequence, w.state from relevo.message w
      where w.session = s.id and w.state in (0, 1, 5, 6) order by w.sequence limit 1) h
    where s.id = any (p_sessions) and not s.held and h.state = 6) h
  where m.sequence = h.sequence and m.state = 6;
end $$;
