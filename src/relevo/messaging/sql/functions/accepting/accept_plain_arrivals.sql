-- Accepts arrivals of queues whose messages need no evaluation, oldest first; the class is that of the message, of its priority or
-- of its property `Priority`, else the default. One whose class does not exist gets the default. Entities whose definition is
-- just being changed are passed over. Returns how many.
create or replace function relevo.accept_plain_arrivals(p_entities integer[], p_limit integer default 500) returns integer
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  given record;
  unchanged integer[];
begin
  if not exists (select from relevo.message_arrival a where a.entity_id = any (p_entities)) then return 0; end if;
  unchanged := array(
    select e.id from (select distinct unnest(p_entities) as id order by 1) as e where pg_try_advisory_xact_lock_shared(1380273169, e.id));
  with taken as (
    delete from relevo.message_arrival a using (
      select o.id from relevo.message_arrival o
      join relevo.message_entity e on e.id = o.entity_id and e.is_plain
      where o.entity_id = any (unchanged) order by o.id limit p_limit for update of o skip locked) o
    where a.id = o.id
    returning a.*
  )
  select array_agg(t.entity_id order by t.id) as entities, array_agg(t.message_id order by t.id) as ids,
    array_agg(t.body order by t.id) as bodies, array_agg(t.body_kind order by t.id) as kinds, array_agg(t.due_at order by t.id) as dues,
    array_agg(c.number order by t.id) as classes,
    array_agg(least(c.high, greatest(c.low, coalesce(t.priority, c.base))) order by t.id) as priorities,
    array_agg(octet_length(t.body) + coalesce(octet_length(t.head), 0) order by t.id) as sizes,
    array_agg(least(t.ttl, e.ttl) order by t.id) as ttls, array_agg(t.expires_at order by t.id) as expires,
    array_agg(t.fairness_key order by t.id) as keys, array_agg(t.session_id order by t.id) as sessions,
    array_agg(t.head order by t.id) as heads, array_agg(t.hops order by t.id) as hops,
    array_agg(t.enqueued_sequence order by t.id) as enqueued, array_agg(t.dead order by t.id) as deads
  into given
  from taken t join relevo.message_entity e on e.id = t.entity_id
  cross join lateral (
    select k.* from relevo.message_class k where k.entity_id = t.entity_id and not k.retired
    order by lower(k.name) = lower(t.priority_class) desc nulls last,
      t.priority between k.low and k.high desc nulls last,
      t.priority is null and t.head is not null and lower(k.name) = lower(t.head::jsonb -> 'properties' ->> 'Priority') desc nulls last,
      4 between k.low and k.high desc
    limit 1) c;
  if given.entities is null then return 0; end if;
  perform relevo.accept_messages(
    '{}', '{}', given.entities, given.ids, given.bodies, given.kinds, given.dues,
    array(select generate_series(1, cardinality(given.ids))), given.entities, array_fill(0::smallint, array[cardinality(given.ids)]),
    given.classes, given.priorities, given.sizes, given.ttls, given.expires, given.keys, given.sessions, '{}', given.heads,
    given.deads, given.hops, given.enqueued, '{}', true);
  return cardinality(given.ids);
end $$;
