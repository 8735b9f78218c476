-- Claims messages of an entity with sessions for a host: the next one of each session that the host holds and of which it handles
-- none now, then the first of sessions that it takes. A session in which nothing is left for now is given back.
create or replace function relevo.claim_from_sessions(
  p_entity integer, p_wanted integer, p_token bigint, p_host uuid, p_claim bigint, p_consumers integer)
returns setof relevo.message_notice language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  taken record;
  notice relevo.message_notice;
  got boolean;
begin
  for taken in
    select s.id, s.holder from relevo.message_session s
    where s.host = p_host and s.entity_id = p_entity and s.held
      and not exists (select from relevo.message m where m.session = s.id and m.state in (1, 3))
    order by s.id
  loop
    exit when p_wanted < 1;
    got := false;
    for notice in select * from relevo.receive_from_session(taken.id, taken.holder, 1, p_token, false, p_claim, p_consumers) loop
      if notice.kind = 'claimed' then got := true; p_wanted := p_wanted - 1; return next notice; end if;
    end loop;
    if not got then perform relevo.close_session(taken.id, taken.holder); end if;
  end loop;
  while p_wanted > 0 loop
    select * into taken from relevo.accept_session(p_entity, null, p_host);
    exit when not found;
    for notice in select * from relevo.receive_from_session(taken.session, taken.holder, 1, p_token, false, p_claim, p_consumers) loop
      if notice.kind = 'claimed' then return next notice; end if;
    end loop;
    p_wanted := p_wanted - 1;
  end loop;
end $$;
