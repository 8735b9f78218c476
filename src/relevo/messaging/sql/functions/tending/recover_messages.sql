-- Takes messages and sessions from hosts whose life has ended and from receivers whose lock has expired: such a delivery has
-- failed. Returns the entities that have them again.
create or replace function relevo.recover_messages(p_limit integer default 1000) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  entities integer[] := relevo.recover_sessions(p_limit);
  hosts uuid[] := relevo.lost_hosts();
  lost bigint[];
  at timestamptz := relevo.now();
begin
  lost := array(
    (select m.sequence from relevo.message m where m.locked_until <= at and m.session is null order by m.locked_until limit p_limit)
    union all
    (select m.sequence from unnest(hosts) as h (host) join relevo.message m on m.host = h.host and m.session is null limit p_limit));
  lost := array(
    select m.sequence from relevo.message m
    where m.sequence = any (lost) and m.session is null and (m.locked_until <= at or m.host = any (hosts))
    order by m.sequence for update skip locked);
  if cardinality(lost) = 0 then return entities; end if;
  entities := array(
    select unnest(entities) union select m.entity_id from relevo.message m where m.sequence = any (lost));
  perform relevo.move_messages(lost, array_fill('lose_lock'::text, array[cardinality(lost)]));
  return entities;
end $$;
