-- Locks deferred messages of an entity or sub-queue by their numbers, for a receiver; those of a session for its holder
-- (`p_session`, `p_holder`). If one of them is not deferred, or the session not held so, it takes and answers nothing.
create or replace function relevo.receive_deferred(
  p_entity integer, p_sub_queue smallint, p_sequences bigint[], p_token bigint, p_delete boolean default false,
  p_session bigint default null, p_holder bigint default null)
returns setof relevo.message_notice language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  entity relevo.message_entity;
  session relevo.message_session;
  places tid[];
begin
  select * into entity from relevo.message_entity e where e.id = p_entity and e.status in ('active', 'send_disabled');
  if not found then return; end if;
  if entity.has_sessions and p_sub_queue = 0 then
    session := relevo.held_session(p_session, p_holder);
    if session.id is null then return; end if;
  end if;
  select array_agg(d.ctid order by d.sequence) into places from (
    select m.ctid, m.sequence from relevo.message m
    where m.sequence = any (p_sequences) and m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.state = 2
      and m.session is not distinct from session.id
    order by m.sequence for update) d;
  if places is null or cardinality(places) < (select count(distinct s) from unnest(p_sequences) as s) then return; end if;
  return query select * from relevo.take_messages(
    entity, p_sub_queue, places, null, null, 3::smallint, p_token, session.host, null, null,
    case when session.id is null then relevo.now() + make_interval(secs => entity.lock_seconds) else session.locked_until end,
    p_delete, session.key);
end $$;
