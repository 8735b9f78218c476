-- Adds differences of counters up into one row per entity, sub-queue and class, and waits into one per bucket; rates follow. Those of
-- deleted entities are dropped.
create or replace function relevo.fold_message_counts() returns void language sql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
  with gone as (
    delete from relevo.message_delta d where d.ctid = any (array(select o.ctid from relevo.message_delta o limit 20000 for update skip locked))
    returning d.*
  ), rated as (
    insert into relevo.message_rate as r
    select g.entity_id, g.class, relevo.now(), array_fill(g.sent, array[3]), array_fill(g.delivered, array[3]), array_fill(g.completed, array[3])
    from (
      select d.entity_id, d.class, sum(d.sent)::float8 as sent, sum(d.delivered)::float8 as delivered, sum(d.completed)::float8 as completed
      from gone d where d.sub_queue = 0 and exists (select from relevo.message_entity e where e.id = d.entity_id)
      group by d.entity_id, d.class order by d.entity_id, d.class) g
    where g.sent + g.delivered + g.completed > 0
    on conflict (entity_id, class) do update set at = excluded.at,
      sent = relevo.faded_counts(r.sent, extract(epoch from excluded.at - r.at)::float8, excluded.sent[1]),
      delivered = relevo.faded_counts(r.delivered, extract(epoch from excluded.at - r.at)::float8, excluded.delivered[1]),
      completed = relevo.faded_counts(r.completed, extract(epoch from excluded.at - r.at)::float8, excluded.completed[1])
  )
  insert into relevo.message_count as c
  select g.entity_id, g.sub_queue, g.class, sum(g.active), sum(g.locked), sum(g.deferred), sum(g.scheduled), sum(g.bytes), sum(g.sent),
    sum(g.delivered), sum(g.completed), sum(g.abandoned), sum(g.lock_lost), sum(g.dead_lettered), sum(g.expired), sum(g.preempted),
    sum(g.in_target), sum(g.out_of_target), sum(g.floor_claims), sum(g.unrouted), sum(g.filter_errors), sum(g.fairness_keys)
  from gone g where exists (select from relevo.message_entity e where e.id = g.entity_id)
  group by g.entity_id, g.sub_queue, g.class order by g.entity_id, g.sub_queue, g.class
  on conflict (entity_id, sub_queue, class) do update set
    active = c.active + excluded.active, locked = c.locked + excluded.locked, deferred = c.deferred + excluded.deferred,
    scheduled = c.scheduled + excluded.scheduled, bytes = c.bytes + excluded.bytes, sent = c.sent + excluded.sent,
    delivered = c.delivered + excluded.delivered, completed = c.completed + excluded.completed, abandoned = c.abandoned + excluded.abandoned,
    lock_lost = c.lock_lost + excluded.lock_lost, dead_lettered = c.dead_lettered + excluded.dead_lettered,
    expired = c.expired + excluded.expired, preempted = c.preempted + excluded.preempted, in_target = c.in_target + excluded.in_target,
    out_of_target = c.out_of_target + excluded.out_of_target, floor_claims = c.floor_claims + excluded.floor_claims,
    unrouted = c.unrouted + excluded.unrouted, filter_errors = c.filter_errors + excluded.filter_errors,
    fairness_keys = c.fairness_keys + excluded.fairness_keys;
  with gone as (
    delete from relevo.message_wait_delta d
    where d.ctid = any (array(select o.ctid from relevo.message_wait_delta o limit 20000 for update skip locked)) returning d.*
  )
  insert into relevo.message_wait as w (entity_id, class, bucket, amount)
  select g.entity_id, g.class, g.bucket, sum(g.amount) from gone g
  where exists (select from relevo.message_entity e where e.id = g.entity_id)
  group by g.entity_id, g.class, g.bucket order by g.entity_id, g.class, g.bucket
  on conflict (entity_id, class, bucket) do update set amount = w.amount + excluded.amount;
$$;
