-- Takes sessions from hosts whose life has ended and from holders whose lock has expired. Returns the entities that have them again.
create or replace function relevo.recover_sessions(p_limit integer default 1000) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  lost bigint[];
  hosts uuid[] := relevo.lost_hosts();
begin
  lost := array(
    (select s.id from relevo.message_session s where s.locked_until <= relevo.now() order by s.locked_until limit p_limit)
    union all
    (select s.id from unnest(hosts) as h (host) join relevo.message_session s on s.host = h.host limit p_limit));
  if cardinality(lost) = 0 then return '{}'; end if;
  perform relevo.lock_sessions(lost);
  lost := array(
    select s.id from relevo.message_session s
    where s.id = any (lost) and s.held and (s.locked_until <= relevo.now() or s.host = any (hosts)));
  perform relevo.free_sessions(lost, true);
  return array(select distinct s.entity_id from relevo.message_session s where s.id = any (lost));
end $$;
