-- Renews locks of receivers, which the caller has checked; not beyond the age that the entity allows.
create or replace function relevo.renew_messages(p_sequences bigint[]) returns void language sql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  update relevo.message m set locked_until = greatest(m.locked_until, least(
    relevo.now() + make_interval(secs => e.lock_seconds), m.locked_at + make_interval(secs => e.max_lock_age)))
  from relevo.message_entity e where m.sequence = any (p_sequences) and e.id = m.entity_id and m.locked_until is not null;
$$;
