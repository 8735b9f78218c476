-- Makes messages claimable whose time has come: scheduled ones get a new number, arrival and rank, invisible ones go back to
-- their place. Those of entities that forward, and those of topics, become arrivals. Returns the entities that have them.
create or replace function relevo.make_messages_due(p_limit integer default 1000) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  due bigint[];
  places integer[];
  sessions bigint[];
begin
  select array_agg(d.sequence), array_agg(distinct d.session) filter (where d.session is not null),
    array_agg(distinct d.entity_id) filter (where d.state = 4)
  into due, sessions, places from (
    select m.sequence, m.session, m.entity_id, m.state from relevo.message m where m.state in (4, 5) and m.visible_at <= at
    order by m.visible_at, m.sequence limit p_limit) d;
  if due is null then return '{}'; end if;
  if sessions is not null then perform relevo.lock_sessions(sessions); end if;
  perform relevo.lock_tally(e.id) from (
    select e.id from relevo.message_entity e where e.id = any (places) and e.fair order by e.id) e;
  select array_agg(d.sequence order by d.visible_at, d.sequence), array_agg(distinct d.entity_id) into due, places from (
    select m.sequence, m.visible_at, m.entity_id from relevo.message m
    where m.sequence = any (due) and m.state in (4, 5) and m.visible_at <= at order by m.sequence for update skip locked) d;
  if due is null then return '{}'; end if;
  update relevo.message m set state = case when m.session is null then 0 else 6 end, visible_at = null
  where m.sequence = any (due) and m.state = 5;
  perform relevo.arrive_scheduled(array_agg(m.sequence))
  from relevo.message m join relevo.message_entity e on e.id = m.entity_id
  where m.sequence = any (due) and m.state = 4 and (e.kind = 'topic' or e.forward_to is not null) having count(*) > 0;
  perform relevo.renumber_messages(array_agg(g.sequence order by g.n))
  from unnest(due) with ordinality as g (sequence, n) join relevo.message m on m.sequence = g.sequence and m.state = 4
  having count(*) > 0;
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  return places;
end $$;
