-- Creates an entity, or gives it a new version; `p_decided` has the columns that follow from the properties, `p_classes` all its
-- classes. The caller holds the locks of the entity.
create or replace function relevo.put_message_entity(
  p_topic integer, p_kind text, p_name text, p_path text, p_properties jsonb, p_decided jsonb, p_classes jsonb)
returns table (id integer, version bigint, created_at timestamptz, updated_at timestamptz) language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  entity relevo.message_entity;
begin
  insert into relevo.message_entity as e (
    topic_id, kind, name, path, key, properties, status, is_plain, policy, rank_by_time, rank_step, floor_patience, fair, has_sessions,
    lock_seconds, max_lock_age, max_delivery_count, ttl, dead_letter_ttl, dead_letter_expired, backoff_first, backoff_factor,
    backoff_longest, backoff_low, backoff_high, forward_to, forward_dead_to, duplicate_window, idle_seconds, max_bytes, events)
  select p_topic, p_kind, p_name, p_path, lower(p_path), p_properties, d.status, d.is_plain, d.policy, d.rank_by_time, d.rank_step,
    d.floor_patience, d.fair, d.has_sessions, d.lock_seconds, d.max_lock_age, d.max_delivery_count, d.ttl, d.dead_letter_ttl,
    d.dead_letter_expired, d.backoff_first, d.backoff_factor, d.backoff_longest, d.backoff_low, d.backoff_high, d.forward_to,
    d.forward_dead_to, d.duplicate_window, d.idle_seconds, d.max_bytes, d.events
  from jsonb_populate_record(null::relevo.message_entity, p_decided) as d
  on conflict (key) do update set
    version = e.version + 1, updated_at = relevo.now(), properties = excluded.properties, status = excluded.status,
    is_plain = excluded.is_plain, policy = excluded.policy, rank_by_time = excluded.rank_by_time, rank_step = excluded.rank_step,
    floor_patience = excluded.floor_patience, fair = excluded.fair, has_sessions = excluded.has_sessions,
    lock_seconds = excluded.lock_seconds, max_lock_age = excluded.max_lock_age, max_delivery_count = excluded.max_delivery_count,
    ttl = excluded.ttl, dead_letter_ttl = excluded.dead_letter_ttl, dead_letter_expired = excluded.dead_letter_expired,
    backoff_first = excluded.backoff_first, backoff_factor = excluded.backoff_factor, backoff_longest = excluded.backoff_longest,
    backoff_low = excluded.backoff_low, backoff_high = excluded.backoff_high, forward_to = excluded.forward_to,
    forward_dead_to = excluded.forward_dead_to, duplicate_window = excluded.duplicate_window, idle_seconds = excluded.idle_seconds,
    max_bytes = excluded.max_bytes, events = excluded.events
  returning e.* into entity;
  insert into relevo.message_class as k (
    entity_id, number, name, low, high, base, weight, slo, rank_offset, tier, express, preempts, preemptible, on_breach, retired)
  select entity.id, c.number, c.name, c.low, c.high, c.base, c.weight, c.slo, c.rank_offset, c.tier, c.express, c.preempts,
    c.preemptible, c.on_breach, c.retired
  from jsonb_populate_recordset(null::relevo.message_class, p_classes) as c
  on conflict (entity_id, number) do update set
    name = excluded.name, low = excluded.low, high = excluded.high, base = excluded.base, weight = excluded.weight, slo = excluded.slo,
    rank_offset = excluded.rank_offset, tier = excluded.tier, express = excluded.express, preempts = excluded.preempts,
    preemptible = excluded.preemptible, on_breach = excluded.on_breach, retired = excluded.retired;
  return query select entity.id, entity.version, entity.created_at, entity.updated_at;
end $$;
