-- Locks sessions against senders and holders, to the end of the transaction, in the order that all keep to.
create or replace function relevo.lock_sessions(p_sessions bigint[]) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform pg_advisory_xact_lock(1380273170, g.lock) from (
    select distinct hashtext(s.entity_id || ' ' || s.key) as lock
    from relevo.message_session s where s.id = any (p_sessions) order by 1) as g;
  perform from relevo.message_session s where s.id = any (p_sessions) order by s.id for update;
end $$;
