-- Takes sessions from their holders, which the caller has checked, and their sessions locked by `relevo.lock_sessions`: unsettled
-- messages go back, with the delivery counted as failed if the session was lost (`p_lost`). The next holder finds them in order.
create or replace function relevo.free_sessions(p_sessions bigint[], p_lost boolean) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  unsettled bigint[];
begin
  update relevo.message_session s set held = false, host = null, locked_until = null, updated_at = relevo.now() where s.id = any (p_sessions);
  unsettled := array(
    select m.sequence from relevo.message m where m.session = any (p_sessions) and m.state in (1, 3) order by m.sequence for update);
  if cardinality(unsettled) > 0 then
    perform relevo.move_messages(unsettled, array_fill(case when p_lost then 'lose_lock' else 'release' end, array[cardinality(unsettled)]));
  end if;
  perform relevo.open_sessions(p_sessions);
end $$;
