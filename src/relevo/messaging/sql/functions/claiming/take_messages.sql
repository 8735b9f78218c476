-- Locks messages, whose rows the caller has locked, for a holder and answers them in the order of `p_places`; with `p_delete` they
-- are gone at once. `p_fresh`: which of them were never delivered; `p_floors`: see `relevo.choose_messages`. Deferred messages
-- (`p_state` 3) stay what they are. `p_until` is the end of the lock, none for hosts; `p_session` the key of their session.
create or replace function relevo.take_messages(
  p_entity relevo.message_entity, p_sub_queue smallint, p_places tid[], p_fresh boolean[], p_floors smallint[], p_state smallint,
  p_token bigint, p_host uuid, p_claim bigint, p_consumers integer, p_until timestamptz, p_delete boolean, p_session text default null)
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  waits constant interval[] := '{1 ms,2 ms,4 ms,8 ms,16 ms,32 ms,64 ms,128 ms,256 ms,512 ms,1024 ms,2048 ms,4096 ms,8192 ms,16384 ms,32768 ms,65536 ms,131072 ms,262144 ms,524288 ms,1048576 ms,2097152 ms,4194304 ms,8388608 ms,16777216 ms}';  -- see `relevo.messaging.operating.describing.WAIT_BOUNDS`
  sequences bigint[];
begin
  if p_entity.fair and p_sub_queue = 0 and p_state = 1 then perform relevo.reach_tags(p_entity.id, p_places); end if;
  if p_delete or p_entity.events = 'all' then
    sequences := array(select m.sequence from unnest(p_places) as p (place) join relevo.message m on m.ctid = p.place);
  end if;
  return query
  with class as materialized (
    select k.number, at - make_interval(secs => k.slo) as since from relevo.message_class k where k.entity_id = p_entity.id
  ), claimed as (
    update relevo.message m set
      state = p_state, token = p_token, host = p_host, claim = p_claim, consumers = p_consumers, locked_at = at, delivered = true, asks = false,
      locked_until = p_until
    from unnest(p_places, p_fresh) as p (place, fresh) where m.ctid = p.place  -- in this order
    returning m.sequence, m.class, m.priority, m.body_kind, m.delivery_count, m.preempt_count, m.enqueued_at, m.expires_at, m.enqueued_sequence,
      m.message_id, m.fairness_key, m.head, m.body, m.checkpoint, m.dead, m.size, p.fresh
  ), counted as (
    insert into relevo.message_delta (
      entity_id, sub_queue, class, active, deferred, locked, bytes, delivered, completed, in_target, out_of_target, floor_claims)
    select p_entity.id, p_sub_queue, c.class, case p_state when 1 then -count(*) else 0 end, case p_state when 3 then -count(*) else 0 end,
      case when p_delete then 0 else count(*) end, case when p_delete then -sum(c.size) else 0 end, count(*),
      case when p_delete then count(*) else 0 end,
      count(*) filter (where c.fresh and c.enqueued_at >= k.since), count(*) filter (where c.fresh and c.enqueued_at < k.since),
      (select count(*) from unnest(p_floors) as f where f = c.class)
    from claimed c join class k on k.number = c.class
    group by c.class
  ), waited as (
    insert into relevo.message_wait_delta (entity_id, class, bucket, amount)
    select p_entity.id, c.class, width_bucket(at - c.enqueued_at, waits), count(*) from claimed c where c.fresh and p_sub_queue = 0
    group by c.class, width_bucket(at - c.enqueued_at, waits)
  )
  select 'claimed'::text, c.sequence, p_token, p_claim, p_entity.id, p_sub_queue, p_consumers, c.class, c.priority, c.body_kind,
    c.delivery_count, c.preempt_count, c.enqueued_at, c.expires_at, p_until, c.enqueued_sequence, c.message_id,
    c.fairness_key, p_session, c.head, c.body, c.checkpoint, c.dead
  from claimed c;
  if p_entity.events = 'all' then
    perform relevo.announce_messages('relevo.message.delivered', array_agg(m.sequence), array_agg(m.entity_id),
      array_agg(m.sub_queue), array_agg(m.message_id), null, 'all')
    from relevo.message m where m.sequence = any (sequences);
  end if;
  if p_delete then delete from relevo.message m where m.sequence = any (sequences); end if;
end $$;
