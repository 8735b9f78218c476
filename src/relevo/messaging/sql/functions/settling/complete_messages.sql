-- Completes messages by their locks; returns the numbers of those whose lock was good. A message of a session is held only while
-- the session is, so its session gives the next message when it is free again.
create or replace function relevo.complete_messages(p_sequences bigint[], p_tokens bigint[]) returns bigint[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  places tid[];
  completed bigint[];
  ids text[];
  entities integer[];
  sub_queues smallint[];
begin
  -- A statement by itself: the next one sees the rows as they are once they are locked, also if somebody has just marked one.
  places := array(
    select t.ctid from unnest(p_sequences, p_tokens) as g (sequence, token)
    join relevo.message t on t.sequence = g.sequence and t.token = g.token and (t.locked_until is null or t.locked_until > at)
    order by t.sequence for update of t);
  with gone as (
    delete from relevo.message m using unnest(places) as t (place) where m.ctid = t.place
    returning m.sequence, m.entity_id, m.sub_queue, m.class, m.size, m.message_id
  ), counted as (
    insert into relevo.message_delta (entity_id, sub_queue, class, locked, bytes, completed)
    select g.entity_id, g.sub_queue, g.class, -count(*), -sum(g.size), count(*) from gone g group by g.entity_id, g.sub_queue, g.class
  )
  select array_agg(g.sequence), array_agg(g.message_id), array_agg(g.entity_id), array_agg(g.sub_queue)
  into completed, ids, entities, sub_queues from gone g;
  if exists (select from relevo.message_entity e where e.id = any (entities) and e.events = 'all') then
    perform relevo.announce_messages('relevo.message.completed', completed, entities, sub_queues, ids, null, 'all');
  end if;
  return coalesce(completed, '{}');
end $$;
