-- The session whose first message is next by the order of the entity, locked; none if no session can be had. Rows that others have
-- locked are passed over, so that nobody waits here.
create or replace function relevo.next_session(entity relevo.message_entity) returns bigint language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  chosen record;
  head relevo.message;
  session relevo.message_session;
begin
  loop
    select * into chosen from relevo.choose_messages(entity, 0::smallint, 1, null, null);
    if chosen.places is null and chosen.dry is null then return null; end if;
    select * into head from relevo.message m where m.ctid = chosen.places[1];
    select * into session from relevo.message_session s where s.id = head.session for update skip locked;
    if not found then return null; end if;
    if not session.held then
      if entity.fair then perform relevo.reach_tags(entity.id, chosen.places); end if;
      return session.id;
    end if;
    -- It was sent while the session was accepted.
    update relevo.message m set state = 6 where m.sequence = head.sequence;
  end loop;
end $$;
