-- Gives all messages of an entity the rank that its present policy gives them, with their arrival, class and priority as they are;
-- the turns of claims begin anew. The caller holds the lock of the entity. Returns how many messages there are.
create or replace function relevo.rerank_messages(p_entity integer) returns bigint language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  entity relevo.message_entity;
  amount bigint;
begin
  select * into entity from relevo.message_entity e where e.id = p_entity;
  update relevo.message_tally t set express_run = 0, numbers = '{}', vtimes = '{}', tags = '{}' where t.entity_id = p_entity;
  with gone as (
    delete from relevo.message_fairness f where f.entity_id = p_entity returning f.class
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, fairness_keys)
  select p_entity, 0, g.class, -count(*) from gone g group by g.class;
  perform from relevo.message m where m.entity_id = p_entity and m.sub_queue = 0 order by m.sequence for update;
  get diagnostics amount = row_count;
  if entity.fair then
    with tagged as (
      select m.sequence, m.class, coalesce(m.fairness_key, '') as key,
        first_value(m.sequence) over tenant as first, row_number() over tenant - 1 as before
      from relevo.message m where m.entity_id = p_entity and m.sub_queue = 0 and m.state <> 4
      window tenant as (partition by m.class, coalesce(m.fairness_key, '') order by m.sequence)
    ), ranked as (
      update relevo.message m set rank = 1000000 - ((-t.first % 1000000) + 1000000) % 1000000 + t.before * 1000000
      from tagged t where m.sequence = t.sequence
      returning t.class, t.key, m.rank
    ), kept as (
      insert into relevo.message_fairness (entity_id, class, key, last_tag, used_at)
      select p_entity, r.class, r.key, max(r.rank), relevo.now() from ranked r group by r.class, r.key
      returning class
    )
    insert into relevo.message_delta (entity_id, sub_queue, class, fairness_keys)
    select p_entity, 0, k.class, count(*) from kept k group by k.class;
  else
    update relevo.message m set rank = k.rank_offset - m.priority * entity.rank_step
      + case when entity.rank_by_time then (extract(epoch from m.enqueued_at) * 1000000)::bigint else 0 end
    from relevo.message_class k
    where m.entity_id = p_entity and m.sub_queue = 0 and k.entity_id = p_entity and k.number = m.class;
  end if;
  return amount;
end $$;
