-- An entity, of those that are sent to, that has no room for more; as of the last folding of counters, a second ago. A topic
-- has the size of its subscriptions.
create or replace function relevo.full_entity(p_entities integer[]) returns integer language plpgsql stable
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return (
    select e.id from relevo.message_entity e
    where e.id = any (p_entities) and e.max_bytes is not null and e.max_bytes <= (
      select coalesce(sum(c.bytes), 0) from relevo.message_count c
      where c.entity_id = any (e.id || case when e.kind = 'topic' then
        array(select s.id from relevo.message_entity s where s.topic_id = e.id) end))
    limit 1);
end $$;
