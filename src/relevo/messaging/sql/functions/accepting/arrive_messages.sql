-- Stores messages that a caller sends inside its own transaction, as arrivals: it locks nothing, and hosts accept them after the
-- commit. Entities are named by their paths; one that does not exist or takes nothing is refused. Returns the ids.
create or replace function relevo.arrive_messages(
  p_paths text[], p_bodies bytea[], p_kinds smallint[], p_ids text[], p_priorities smallint[] default '{}', p_classes text[] default '{}',
  p_keys text[] default '{}', p_sessions text[] default '{}', p_ttls float8[] default '{}', p_dues timestamptz[] default '{}',
  p_heads text[] default '{}')
returns text[] language plpgsql volatile security definer set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare refused record;
begin
  perform relevo.count_message_operation();
  select g.path, e.status, e.kind into refused from unnest(p_paths) as g (path)
  left join relevo.message_entity e on e.key = lower(g.path) and e.kind <> 'subscription'
  where e.id is null or e.status not in ('active', 'receive_disabled') limit 1;
  if found and refused.status is null then
    raise exception 'there is no queue or topic "%"', left(refused.path, 300)
      using errcode = 'RV012', hint = 'Create it first, by its command or by app.queue(...).';
  elsif found then
    raise exception '"%" is % and takes no messages', refused.path, refused.status
      using errcode = 'RV013', hint = 'Set its status to active.';
  end if;
  insert into relevo.message_arrival (
    entity_id, priority, body_kind, ttl, due_at, priority_class, message_id, session_id, fairness_key, head, body)
  select e.id, g.priority, g.kind, g.ttl, g.due, g.class, g.id, g.session, g.key, g.head, g.body
  from unnest(p_paths, p_bodies, p_kinds, p_ids, p_priorities, p_classes, p_keys, p_sessions, p_ttls, p_dues, p_heads) with ordinality
    as g (path, body, kind, id, priority, class, key, session, ttl, due, head, n)
  join relevo.message_entity e on e.key = lower(g.path) order by g.n;
  return p_ids;
end $$;
