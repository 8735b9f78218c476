-- What becomes of held messages that are not completed, by the table of `relevo.messaging.states`: `abandon`, `lose_lock`, `defer`,
-- `dead_letter`, `release`, `suspend`. The caller has checked the locks and locked the rows. A failed delivery counts; then the
-- message has expired, was delivered as often as it may be, or goes back to its place, after the delay that the receiver or the
-- entity says. Dead-lettered messages go to the entity that the source names, as arrivals, or to its dead-letter queue.
create or replace function relevo.move_messages(
  p_sequences bigint[], p_events text[], p_until timestamptz[] default '{}', p_reasons text[] default '{}',
  p_descriptions text[] default '{}', p_checkpoints bytea[] default '{}')
returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  moves relevo.message_move[];
begin
  with given as (
    select m.sequence, m.entity_id, m.sub_queue, m.state, m.session, m.expires_at, m.size, m.class, m.message_id, g.event, g.until,
      g.reason, g.description, g.checkpoint, e.max_delivery_count, e.dead_letter_expired, e.path,
      m.delivery_count + case when g.event in ('abandon', 'lose_lock') and m.sub_queue = 0 then 1 else 0 end as count,
      case when g.event = 'abandon' and g.until is null and m.sub_queue = 0 and e.backoff_first is not null
           then at + make_interval(secs => least(e.backoff_longest, e.backoff_first * e.backoff_factor ^ least(m.delivery_count, 1000))
                                           * (e.backoff_low + random() * (e.backoff_high - e.backoff_low)))
           else g.until end as visible
    from unnest(p_sequences, p_events, p_until, p_reasons, p_descriptions, p_checkpoints)
      as g (sequence, event, until, reason, description, checkpoint)
    join relevo.message m on m.sequence = g.sequence
    join relevo.message_entity e on e.id = m.entity_id
  ), judged as (
    select g.*, case
      when g.event = 'dead_letter' then 'dead'
      when g.event not in ('abandon', 'lose_lock') or g.sub_queue > 0 then 'back'
      when g.expires_at <= at and g.state <> 3 then case when g.dead_letter_expired then 'expired' else 'gone' end
      when g.count >= g.max_delivery_count then 'exhausted'
      else 'back' end as fate
    from given g
  )
  select array_agg((j.sequence, j.session, j.event, j.fate, j.count, case when j.visible > at and j.state <> 3 then j.visible end, j.checkpoint,
    case j.fate
      when 'dead' then jsonb_strip_nulls(jsonb_build_object('reason', j.reason, 'description', j.description, 'source', j.path))
      when 'expired' then jsonb_build_object('reason', 'TTLExpiredException', 'description', 'The message expired and was dead lettered.', 'source', j.path)
      when 'exhausted' then jsonb_build_object('reason', 'MaxDeliveryCountExceeded', 'source', j.path,
        'description', 'The message was delivered ' || j.count || ' times, which is as often as it may be.')
      end::text)::relevo.message_move order by j.sequence)
  into moves from judged j;
  if moves is null then return; end if;
  with changed as (
    update relevo.message m set
      state = case when v.fate <> 'back' then 0
                   when v.event = 'defer' or m.state = 3 then 2
                   when v.visible_at is not null then 5
                   when m.session is not null then 6 else 0 end,
      sub_queue = case when v.fate in ('dead', 'expired', 'exhausted') then 1 else m.sub_queue end,
      rank = case when v.fate in ('dead', 'expired', 'exhausted') then 0 else m.rank end,
      session = case when v.fate = 'back' then m.session end,
      expires_at = case when v.fate in ('dead', 'expired', 'exhausted') then at + make_interval(secs => e.dead_letter_ttl) else m.expires_at end,
      dead = coalesce(v.dead, m.dead), delivery_count = v.delivery_count,
      preempt_count = m.preempt_count + case when v.event = 'suspend' then 1 else 0 end, preempt_asked = false,
      checkpoint = coalesce(v.checkpoint, m.checkpoint), visible_at = case when v.fate = 'back' then v.visible_at end,
      token = null, claim = null, host = null, consumers = null, locked_at = null, locked_until = null
    from unnest(moves) as v join relevo.message o on o.sequence = v.sequence join relevo.message_entity e on e.id = o.entity_id
    where m.sequence = v.sequence
    returning m.sequence, m.entity_id, o.sub_queue as old_sub_queue, m.sub_queue, m.class, m.state, o.session as old_session, m.size, v.event, v.fate
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, locked, deferred, bytes, abandoned, lock_lost, dead_lettered, expired, preempted)
  select c.entity_id, c.sub_queue, c.class, sum(c.active), sum(c.locked), sum(c.deferred), sum(c.bytes), sum(c.abandoned), sum(c.lock_lost),
    sum(c.dead_lettered), sum(c.expired), sum(c.preempted)
  from (
    select c.entity_id, c.old_sub_queue as sub_queue, c.class, 0 as active, -1 as locked, 0 as deferred,
      case when c.fate <> 'back' then -c.size else 0 end as bytes,
      (c.event = 'abandon')::integer as abandoned, (c.event = 'lose_lock')::integer as lock_lost,
      (c.fate in ('dead', 'expired', 'exhausted'))::integer as dead_lettered, (c.fate in ('expired', 'gone'))::integer as expired,
      (c.event = 'suspend')::integer as preempted
    from changed c
    union all
    select c.entity_id, c.sub_queue, c.class, (c.state <> 2)::integer, 0, (c.state = 2)::integer,
      case when c.fate <> 'back' then c.size else 0 end, 0, 0, 0, 0, 0
    from changed c where c.fate <> 'gone'
  ) c group by c.entity_id, c.sub_queue, c.class;
  delete from relevo.message m using unnest(moves) as v where v.fate = 'gone' and m.sequence = v.sequence;
  perform relevo.after_moves(moves);
end $$;
