-- Moves messages to other entities: there they are arrivals, which hosts accept by the rules of the destination. What cannot go,
-- because the destination is missing, takes nothing or is full, or after four forwards, goes to the dead-letter queue of transfers of its
-- entity. A message that leaves a dead-letter queue drops its time to live.
create or replace function relevo.forward_messages(p_sequences bigint[], p_destinations text[]) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  moved bigint[];
begin
  with given as (
    select g.sequence, d.id as destination from unnest(p_sequences, p_destinations) as g (sequence, destination)
    join relevo.message m on m.sequence = g.sequence
    join relevo.message_entity d on d.key = lower(g.destination) and d.kind <> 'subscription' and d.status in ('active', 'receive_disabled')
      and relevo.full_entity(array[d.id]) is null
    where m.hops < 4
  ), left_here as (
    delete from relevo.message m using given g where m.sequence = g.sequence
    returning m.*, g.destination
  ), arrived as (
    insert into relevo.message_arrival (
      entity_id, priority, priority_class, body_kind, hops, enqueued_sequence, expires_at, message_id, session_id, fairness_key, head, body,
      dead)
    select l.destination, case when l.head::jsonb ? 'asked' then (l.head::jsonb #>> '{asked,priority}')::smallint else l.priority end,
      l.head::jsonb #>> '{asked,priority_class}', l.body_kind, l.hops + 1, coalesce(l.enqueued_sequence, l.sequence),
      case when l.sub_queue = 0 then l.expires_at end, l.message_id, l.head::jsonb ->> 'session_id', l.fairness_key, l.head, l.body, l.dead
    from left_here l order by l.sequence
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, active, bytes)
    select l.entity_id, l.sub_queue, l.class, -count(*), -sum(l.size) from left_here l group by l.entity_id, l.sub_queue, l.class
  )
  select array_agg(l.sequence) into moved from left_here l;
  if cardinality(p_sequences) > coalesce(cardinality(moved), 0) then
    with stuck as (
      update relevo.message m set sub_queue = 2, rank = 0, state = 0, session = null, visible_at = null, expires_at = null,
        dead = jsonb_build_object('source', e.path,
          'reason', case when m.hops >= 4 then 'MaxTransferHopCountExceeded' else 'TransferFailed' end,
          'description', case when m.hops >= 4 then 'The message was forwarded as often as it may be.'
            else 'The destination ' || g.destination || ' does not exist, is full or takes no messages.' end)::text
      from unnest(p_sequences, p_destinations) as g (sequence, destination), relevo.message o, relevo.message_entity e
      where m.sequence = g.sequence and o.sequence = g.sequence and e.id = m.entity_id and not (g.sequence = any (coalesce(moved, '{}')))
      returning m.entity_id, o.sub_queue as old_sub_queue, m.class, m.size
    )
    insert into relevo.message_delta (entity_id, sub_queue, class, active, bytes, dead_lettered)
    select s.entity_id, v.sub_queue, s.class, sum(v.sign), sum(v.sign * s.size), sum(v.letters)
    from stuck s cross join lateral (values (s.old_sub_queue, -1, (s.old_sub_queue = 0)::integer), (2::smallint, 1, 0)) as v (sub_queue, sign, letters)
    group by s.entity_id, v.sub_queue, s.class;
    perform relevo.announce_messages('relevo.message.dead_lettered', array_agg(m.sequence), array_agg(m.entity_id), array_agg(m.sub_queue),
      array_agg(m.message_id), array_agg(m.dead), 'dead')
    from relevo.message m where m.sequence = any (p_sequences);
  end if;
end $$;
