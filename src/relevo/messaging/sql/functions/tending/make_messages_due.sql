-- Makes messages claimable whose time has come: scheduled ones get a new number, arrival and rank, invisible ones go back to
-- their place. Those of entities that forward, and those of topics, become arrivals. Returns the entities that have them.
create or replace function relevo.make_messages_due(p_limit integer default 1000) returns integer[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  micros bigint := (extract(epoch from at) * 1000000)::bigint;
  due bigint[];
  numbers bigint[];
  tags bigint[] := '{}';
  places integer[];
  sessions bigint[];
begin
  select array_agg(d.sequence order by d.visible_at, d.sequence) into due from (
    select m.sequence, m.visible_at from relevo.message m where m.state in (4, 5) and m.visible_at <= at
    order by m.visible_at, m.sequence limit p_limit for update skip locked) d;
  if due is null then return '{}'; end if;
  select array_agg(distinct m.entity_id), array_agg(distinct m.session) filter (where m.session is not null) into places, sessions
  from relevo.message m where m.sequence = any (due);
  update relevo.message m set state = case when m.session is null then 0 else 6 end, visible_at = null
  where m.sequence = any (due) and m.state = 5;
  perform relevo.arrive_scheduled(array_agg(m.sequence))
  from relevo.message m join relevo.message_entity e on e.id = m.entity_id
  where m.sequence = any (due) and m.state = 4 and (e.kind = 'topic' or e.properties ? 'forward_to') having count(*) > 0;
  if exists (select from relevo.message m where m.sequence = any (due) and m.state = 4) then
    due := array(select g.sequence from unnest(due) with ordinality as g (sequence, n)
      join relevo.message m on m.sequence = g.sequence and m.state = 4 order by g.n);
    numbers := array(select nextval('relevo.message_sequence') from generate_series(1, cardinality(due)));
    if exists (select from relevo.message_entity e where e.id = any (places) and e.fair) then
      tags := relevo.tag_messages(array_agg(1), array_agg(m.entity_id order by g.n), array_agg(m.sub_queue order by g.n),
        array_agg(m.class order by g.n), array_agg(m.fairness_key order by g.n), numbers)
      from unnest(due) with ordinality as g (sequence, n) join relevo.message m on m.sequence = g.sequence;
    end if;
    with moved as (
      update relevo.message m set sequence = g.number, enqueued_at = at, visible_at = null, ttl = null,
        state = case when m.session is null then 0 else 6 end,
        expires_at = at + make_interval(secs => m.ttl),
        rank = coalesce(g.tag, (case when e.rank_by_time then micros else 0 end) + k.rank_offset - m.priority * e.rank_step)
      from unnest(due, numbers, tags) as g (sequence, number, tag), relevo.message_entity e, relevo.message_class k
      where m.sequence = g.sequence and e.id = m.entity_id and k.entity_id = m.entity_id and k.number = m.class
      returning m.entity_id, m.class
    )
    insert into relevo.message_delta (entity_id, sub_queue, class, active, scheduled)
    select m.entity_id, 0, m.class, count(*), -count(*) from moved m group by m.entity_id, m.class;
  end if;
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  return places;
end $$;
