-- Makes messages arrive now at the entity itself: scheduled ones whose time has come, and dead-lettered ones that are redriven. Each
-- gets a new number, in the order given, arrival and rank; it waits behind its session until that is opened. The caller has
-- locked their sessions, the tallies of fair entities, and the rows. Returns the new numbers.
create or replace function relevo.renumber_messages(p_sequences bigint[]) returns bigint[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  micros bigint := (extract(epoch from at) * 1000000)::bigint;
  numbers bigint[] := array(select nextval('relevo.message_sequence') from generate_series(1, cardinality(p_sequences)));
  tags bigint[];
begin
  tags := relevo.tag_messages(array_agg(1), array_agg(m.entity_id order by g.n), array_agg(0::smallint),
    array_agg(m.class order by g.n), array_agg(m.fairness_key order by g.n), numbers)
  from unnest(p_sequences) with ordinality as g (sequence, n) join relevo.message m on m.sequence = g.sequence
  where exists (select from relevo.message o join relevo.message_entity e on e.id = o.entity_id where o.sequence = any (p_sequences) and e.fair);
  with moved as (
    update relevo.message m set sequence = g.number, enqueued_at = at, visible_at = null, ttl = null, sub_queue = 0, dead = null,
      state = case when m.session is null then 0 else 6 end,
      expires_at = at + make_interval(secs => case when o.state = 4 then m.ttl else e.ttl end),
      rank = coalesce(g.tag, (case when e.rank_by_time then micros else 0 end) + k.rank_offset - m.priority * e.rank_step)
    from unnest(p_sequences, numbers, tags) as g (sequence, number, tag) join relevo.message o on o.sequence = g.sequence
    join relevo.message_entity e on e.id = o.entity_id
    join relevo.message_class k on k.entity_id = o.entity_id and k.number = o.class
    where m.sequence = o.sequence
    returning m.entity_id, m.class, m.size, o.state as old_state, o.sub_queue as old_sub_queue
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, deferred, scheduled, bytes)
  select c.entity_id, c.sub_queue, c.class, sum(c.active), sum(c.deferred), sum(c.scheduled), sum(c.bytes) from (
    select m.entity_id, m.old_sub_queue as sub_queue, m.class, -(m.old_state in (0, 5))::integer as active,
      -(m.old_state = 2)::integer as deferred, -(m.old_state = 4)::integer as scheduled, -m.size as bytes from moved m
    union all
    select m.entity_id, 0, m.class, 1, 0, 0, m.size from moved m) c
  group by c.entity_id, c.sub_queue, c.class;
  return numbers;
end $$;
