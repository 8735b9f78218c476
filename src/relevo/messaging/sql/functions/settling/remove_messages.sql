-- Deletes messages that nobody holds, whose rows the caller has locked, and counts them.
create or replace function relevo.remove_messages(p_sequences bigint[], p_expired boolean default false) returns void
language sql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  with gone as (
    delete from relevo.message m where m.sequence = any (p_sequences) returning m.entity_id, m.sub_queue, m.class, m.size, m.state
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, deferred, scheduled, bytes, expired)
  select g.entity_id, g.sub_queue, g.class, -count(*) filter (where g.state in (0, 5, 6)), -count(*) filter (where g.state = 2),
    -count(*) filter (where g.state = 4), -sum(g.size), case when p_expired then count(*) else 0 end
  from gone g group by g.entity_id, g.sub_queue, g.class;
$$;
