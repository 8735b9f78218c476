-- Locks the next messages of a session for its holder, in the order of their numbers; none after one that is invisible until its
-- time. If the holder has lost the session, the only row has the kind `lost`.
create or replace function relevo.receive_from_session(
  p_session bigint, p_holder bigint, p_wanted integer, p_token bigint, p_delete boolean default false, p_claim bigint default null,
  p_consumers integer default null)
returns setof relevo.message_notice language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  session relevo.message_session := relevo.held_session(p_session, p_holder);
  entity relevo.message_entity;
  places tid[];
  fresh boolean[];
  notice relevo.message_notice;
begin
  if session.id is null then
    notice.kind := 'lost';
    return next notice;
    return;
  end if;
  select * into entity from relevo.message_entity e where e.id = session.entity_id and e.status in ('active', 'send_disabled');
  if not found then return; end if;
  if entity.fair then perform relevo.lock_tally(entity.id); end if;
  select array_agg(m.ctid order by m.sequence), array_agg(not m.delivered order by m.sequence) into places, fresh from (
    select m.ctid, m.sequence, m.delivered from relevo.message m
    where m.session = p_session and m.state in (0, 6) and (m.expires_at is null or m.expires_at > at)
      and not exists (select from relevo.message o where o.session = p_session and o.state = 5 and o.sequence < m.sequence)
    order by m.sequence limit p_wanted for update) m;
  if places is null then return; end if;
  return query select * from relevo.take_messages(
    entity, 0::smallint, places, fresh, null, 1::smallint, p_token, session.host, p_claim, p_consumers, session.locked_until,
    p_delete, session.key);
end $$;
