-- Claims the next messages of an entity or sub-queue, in their order: for a host (`p_host`, `p_claim`, `p_consumers`), whose locks last
-- as long as its life, or for a receiver, for the lock duration of the entity. With `p_delete` they are gone at once. With `p_first`
-- only those are claimed, whatever their place. Classes whose messages other claims hold at this moment leave their turn to the others.
create or replace function relevo.claim_messages_from(
  p_entity integer, p_sub_queue smallint, p_wanted integer, p_token bigint, p_host uuid, p_claim bigint, p_consumers integer,
  p_delete boolean, p_classes smallint[] default null, p_full_keys text[] default null, p_first bigint[] default null)
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  entity relevo.message_entity;
  chosen record;
  sequences bigint[];
begin
  select * into entity from relevo.message_entity e
  where e.id = p_entity and e.status in ('active', 'send_disabled') and not (e.has_sessions and p_sub_queue = 0);
  if not found then return; end if;
  loop
    if p_first is null then
      select * into chosen from relevo.choose_messages(entity, p_sub_queue, p_wanted, p_classes, p_full_keys);
    else
      select array_agg(f.ctid order by f.sequence) as places, array_agg(f.fresh order by f.sequence) as fresh,
        '{}'::smallint[] as floors, null::smallint[] as dry
      into chosen from (
        select m.ctid, m.sequence, not m.delivered as fresh from relevo.message m
        where m.sequence = any (p_first) and m.state = 0 and (m.expires_at is null or m.expires_at > at)
        order by m.sequence limit p_wanted for update of m skip locked) f;
    end if;
    if chosen.places is not null then
      if entity.fair and p_sub_queue = 0 then perform relevo.reach_tags(p_entity, chosen.places); end if;
      if p_delete or entity.events = 'all' then
        sequences := array(select m.sequence from unnest(chosen.places) as p (place) join relevo.message m on m.ctid = p.place);
      end if;
      return query
      with claimed as (
        update relevo.message m set
          state = 1, token = p_token, host = p_host, claim = p_claim, consumers = p_consumers, locked_at = at, delivered = true, asks = false,
          locked_until = case when p_host is null then at + make_interval(secs => entity.lock_seconds) end
        from unnest(chosen.places, chosen.fresh) as p (place, fresh) where m.ctid = p.place  -- in this order
        returning m.*, p.fresh
      ), counted as (
        insert into relevo.message_delta (
          entity_id, sub_queue, class, active, locked, bytes, delivered, completed, in_target, out_of_target, floor_claims)
        select p_entity, p_sub_queue, c.class, -count(*), case when p_delete then 0 else count(*) end,
          case when p_delete then -sum(c.size) else 0 end, count(*), case when p_delete then count(*) else 0 end,
          count(*) filter (where c.fresh and at - c.enqueued_at <= make_interval(secs => k.slo)),
          count(*) filter (where c.fresh and at - c.enqueued_at > make_interval(secs => k.slo)),
          (select count(*) from unnest(chosen.floors) as f where f = c.class)
        from claimed c join relevo.message_class k on k.entity_id = p_entity and k.number = c.class
        group by c.class
      )
      select 'claimed'::text, c.sequence, c.token, c.claim, c.entity_id, c.sub_queue, c.consumers, c.class, c.priority, c.body_kind,
        c.delivery_count, c.preempt_count, c.enqueued_at, c.expires_at, c.locked_until, c.enqueued_sequence, c.message_id,
        c.fairness_key, null::text, c.head, c.body, c.checkpoint, c.dead
      from claimed c;
      if entity.events = 'all' then
        perform relevo.announce_messages('relevo.message.delivered', array_agg(m.sequence), array_agg(m.entity_id),
          array_agg(m.sub_queue), array_agg(m.message_id), null, 'all')
        from relevo.message m where m.sequence = any (sequences);
      end if;
      if p_delete then delete from relevo.message m where m.sequence = any (sequences); end if;
    end if;
    p_wanted := p_wanted - coalesce(cardinality(chosen.places), 0);
    exit when p_wanted <= 0 or chosen.dry is null;
    p_classes := array(
      select c.number from relevo.message_class c
      where c.entity_id = p_entity and (p_classes is null or c.number = any (p_classes)) and not (c.number = any (chosen.dry)));
  end loop;
end $$;
