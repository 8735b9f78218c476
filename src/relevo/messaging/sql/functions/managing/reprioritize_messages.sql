-- Gives messages of an entity another class and priority, and the rank that they would have had; their arrival stays. Locked ones
-- stand there when they come back. Returns the numbers of those that there are.
create or replace function relevo.reprioritize_messages(p_entity integer, p_sequences bigint[], p_class smallint, p_priority smallint)
returns bigint[] language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  entity relevo.message_entity;
  changed bigint[];
  tags bigint[];
begin
  perform pg_advisory_xact_lock_shared(1380273169, p_entity);
  select * into entity from relevo.message_entity e where e.id = p_entity;
  if entity.fair then perform relevo.lock_tally(p_entity); end if;
  changed := array(
    select m.sequence from relevo.message m where m.sequence = any (p_sequences) and m.entity_id = p_entity and m.sub_queue = 0
    order by m.sequence for update);
  if cardinality(changed) = 0 then return changed; end if;
  if entity.fair then
    tags := relevo.tag_messages(
      array_agg(1), array_agg(p_entity), array_agg(0::smallint), array_agg(p_class), array_agg(m.fairness_key order by g.n), changed)
    from unnest(changed) with ordinality as g (sequence, n) join relevo.message m on m.sequence = g.sequence;
  end if;
  with moved as (
    update relevo.message m set class = p_class, priority = p_priority,
      rank = case when g.tag is not null then case when o.class = p_class then m.rank else g.tag end
        else (case when entity.rank_by_time then (extract(epoch from m.enqueued_at) * 1000000)::bigint else 0 end)
          + k.rank_offset - p_priority * entity.rank_step end
    from unnest(changed, tags) as g (sequence, tag) join relevo.message o on o.sequence = g.sequence
    join relevo.message_class k on k.entity_id = p_entity and k.number = p_class
    where m.sequence = o.sequence
    returning m.state, m.size, o.class as old_class
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, locked, deferred, scheduled, bytes)
  select p_entity, 0, v.class, coalesce(sum(v.sign) filter (where m.state in (0, 5, 6)), 0), coalesce(sum(v.sign) filter (where m.state in (1, 3)), 0),
    coalesce(sum(v.sign) filter (where m.state = 2), 0), coalesce(sum(v.sign) filter (where m.state = 4), 0), sum(v.sign * m.size)
  from moved m cross join lateral (values (m.old_class, -1), (p_class, 1)) as v (class, sign)
  where m.old_class <> p_class group by v.class;
  return changed;
end $$;
