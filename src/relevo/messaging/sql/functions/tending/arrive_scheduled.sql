-- Turns scheduled messages of topics and of entities that forward into arrivals, now that their time has come.
create or replace function relevo.arrive_scheduled(p_sequences bigint[]) returns void language sql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  with gone as (
    delete from relevo.message m where m.sequence = any (p_sequences) returning m.*
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, scheduled, bytes)
    select g.entity_id, g.sub_queue, g.class, -count(*), -sum(g.size) from gone g group by g.entity_id, g.sub_queue, g.class
  )
  insert into relevo.message_arrival (
    entity_id, priority, priority_class, body_kind, hops, enqueued_sequence, ttl, message_id, session_id, fairness_key, head, body)
  select g.entity_id, case when g.head::jsonb ? 'asked' then (g.head::jsonb #>> '{asked,priority}')::smallint else g.priority end,
    g.head::jsonb #>> '{asked,priority_class}', g.body_kind, g.hops, g.enqueued_sequence, g.ttl, g.message_id, g.head::jsonb ->> 'session_id',
    g.fairness_key, g.head, g.body
  from gone g order by g.visible_at, g.sequence;
$$;
