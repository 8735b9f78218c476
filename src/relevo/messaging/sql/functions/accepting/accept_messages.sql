-- Accepts messages: gives each its number, arrival and rank, and stores its copies. Everything that needs a filter was
-- evaluated by the caller, with versions of entities; if any of these is not the present one, nothing is stored and the
-- answer is `stale`; `full` names an entity that has no room, `full of keys` one that has none for another tenant, unless the messages
-- have arrived before (`p_arrived`). Per message: the entity that it was sent to, its id, body and due time; per copy: its message
-- (counted from 1), entity, class and so on. A column up to `p_sizes` whose values are all the same may have it once. Else the answer is
-- `sent`, the number of each message, of its first copy, and which messages are duplicates, counted from 1; copies of these
-- are not stored. Copies at entities that forward move on at once.
create or replace function relevo.accept_messages(
  p_entities integer[], p_versions bigint[],
  p_origins integer[], p_ids text[], p_bodies bytea[], p_kinds smallint[], p_dues timestamptz[],
  p_of integer[], p_places integer[], p_sub_queues smallint[], p_classes smallint[], p_priorities smallint[], p_sizes integer[],
  p_ttls float8[] default '{}', p_expires timestamptz[] default '{}', p_keys text[] default '{}', p_sessions text[] default '{}',
  p_copy_ids text[] default '{}', p_heads text[] default '{}', p_deads text[] default '{}', p_hops smallint[] default '{}',
  p_enqueued bigint[] default '{}', p_failures integer[] default '{}', p_arrived boolean default false)
returns table (outcome text, sequences bigint[], doubles integer[]) language plpgsql volatile  -- by hash joins: others would look at entity and class for each message
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_mergejoin = off set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  micros bigint := (extract(epoch from at) * 1000000)::bigint;
  amount constant integer := cardinality(p_ids);
  copies constant integer := cardinality(p_of);
  traits record;  -- of all entities that take part: whether they are as they were, and what has to be done at all
  full_entity integer;
  sessions bigint[] := '{}';
  behind boolean[] := '{}';
  tags bigint[] := '{}';
  numbers bigint[];
begin
  perform pg_advisory_xact_lock_shared(1380273169, e.id) from (select distinct unnest(p_entities) as id order by 1) as e;
  if not p_arrived then full_entity := relevo.full_entity(p_origins); end if;
  p_origins := case when cardinality(p_origins) < amount then array_fill(p_origins[1], array[amount]) else p_origins end;
  p_kinds := case when cardinality(p_kinds) < amount then array_fill(p_kinds[1], array[amount]) else p_kinds end;
  p_places := case when cardinality(p_places) < copies then array_fill(p_places[1], array[copies]) else p_places end;
  p_sub_queues := case when cardinality(p_sub_queues) < copies then array_fill(p_sub_queues[1], array[copies]) else p_sub_queues end;
  p_classes := case when cardinality(p_classes) < copies then array_fill(p_classes[1], array[copies]) else p_classes end;
  p_priorities := case when cardinality(p_priorities) < copies then array_fill(p_priorities[1], array[copies]) else p_priorities end;
  p_sizes := case when cardinality(p_sizes) < copies then array_fill(p_sizes[1], array[copies]) else p_sizes end;
  select count(*) filter (where e.version = p_versions[array_position(p_entities, e.id)]) as present,
    bool_or(e.duplicate_window is not null) as detect_duplicates, bool_or(e.fair) as are_fair, bool_or(e.kind = 'topic') as are_topics,
    bool_or(e.idle_seconds is not null) as can_be_idle, bool_or(e.events = 'all') as announce_all,
    bool_or(e.forward_to is not null or e.forward_dead_to is not null) as forward
  into traits from relevo.message_entity e where e.id = any (p_entities || p_places);
  if traits.present < cardinality(p_entities) then
    outcome := 'stale';
    return next;
    return;
  end if;
  if full_entity is not null then
    outcome := 'full';
    sequences := array[full_entity];
    return next;
    return;
  end if;
  if traits.are_fair and not p_arrived then full_entity := relevo.full_of_keys(p_of, p_places, p_sub_queues, p_classes, p_keys); end if;
  if full_entity is not null then
    outcome := 'full of keys';
    sequences := array[full_entity];
    return next;
    return;
  end if;
  if traits.detect_duplicates then
    doubles := relevo.remember_ids(p_origins, p_ids);
    if cardinality(doubles) > 0 then
      p_of := array(select case when o = any (doubles) then null else o end from unnest(p_of) with ordinality as g (o, n) order by n);
    end if;
  end if;
  if cardinality(p_sessions) > 0 then
    select j.sessions, j.behind into sessions, behind from relevo.join_sessions(p_of, p_places, p_sub_queues, p_sessions, p_dues) as j;
  end if;
  numbers := array(select nextval('relevo.message_sequence') from generate_series(1, cardinality(p_of)));
  if traits.are_fair then
    tags := relevo.tag_messages(p_of, p_places, p_sub_queues, p_classes, p_keys, numbers);
  end if;
  with entity as materialized (
    select e.id, e.kind = 'topic' as is_topic, case when e.rank_by_time then micros else 0 end as origin, e.rank_step, e.dead_letter_ttl
    from relevo.message_entity e where e.id = any (p_places)
  ), class as materialized (
    select k.entity_id, k.number, k.rank_offset from relevo.message_class k where k.entity_id = any (p_places)
  ), stored as (
    insert into relevo.message (
      sequence, rank, enqueued_at, enqueued_sequence, entity_id, sub_queue, class, state, priority, body_kind, hops, size,
      visible_at, expires_at, ttl, session, message_id, fairness_key, head, body, dead)
    select c.sequence,
      case when c.sub_queue > 0 then 0
           else coalesce(c.tag, e.origin + k.rank_offset - c.priority * e.rank_step) end,
      at, c.enqueued, c.place, c.sub_queue, c.class,
      case when p_dues[c.of] > at or e.is_topic then 4 when c.behind then 6 else 0 end,
      c.priority, p_kinds[c.of], coalesce(c.hops, 0::smallint), c.size,
      case when p_dues[c.of] > at or e.is_topic then p_dues[c.of] end,
      case when c.sub_queue > 0 then at + make_interval(secs => e.dead_letter_ttl)
           when p_dues[c.of] > at or e.is_topic then null
           else least(c.expires, at + make_interval(secs => c.ttl)) end,
      case when p_dues[c.of] > at or e.is_topic then c.ttl end,
      c.session, coalesce(c.copy_id, p_ids[c.of]), c.key, c.head, p_bodies[c.of], c.dead
    from unnest(p_of, p_places, p_sub_queues, p_classes, p_priorities, p_sizes, p_ttls, p_expires, p_keys, sessions, behind, p_copy_ids,
                p_heads, p_deads, p_hops, p_enqueued, numbers, tags)
      as c (of, place, sub_queue, class, priority, size, ttl, expires, key, session, behind, copy_id, head, dead, hops, enqueued, sequence, tag)
    join entity e on e.id = c.place
    join class k on k.entity_id = c.place and k.number = c.class
    where c.of is not null
    returning entity_id, sub_queue, class, state, size
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, scheduled, bytes, sent, dead_lettered)
  select s.entity_id, s.sub_queue, s.class, count(*) filter (where s.state <> 4), count(*) filter (where s.state = 4), sum(s.size),
    count(*) filter (where s.sub_queue = 0), count(*) filter (where s.sub_queue > 0)
  from stored s group by s.entity_id, s.sub_queue, s.class;
  if traits.are_topics then
    perform relevo.count_unrouted(p_origins, array_remove(p_of, null) || doubles, p_failures);
  end if;
  if traits.can_be_idle then perform relevo.note_use(p_origins); end if;
  if traits.forward then
    perform relevo.forward_messages(array_agg(m.sequence), array_agg(case m.sub_queue when 0 then e.forward_to else e.forward_dead_to end))
    from relevo.message m join relevo.message_entity e on e.id = m.entity_id and e.id = any (p_places)
    where m.sequence = any (numbers) and m.state = 0
      and case m.sub_queue when 0 then e.forward_to else e.forward_dead_to end is not null
    having count(*) > 0;
  end if;
  if 1 = any (p_sub_queues) then
    perform relevo.announce_messages('relevo.message.dead_lettered', array_agg(c.sequence), array_agg(c.place), array_agg(c.sub_queue),
      array_agg(coalesce(c.copy_id, p_ids[c.of])), array_agg(c.dead), 'dead')
    from unnest(p_of, p_places, p_sub_queues, p_copy_ids, p_deads, numbers) as c (of, place, sub_queue, copy_id, dead, sequence)
    where c.of is not null and c.sub_queue > 0;
  end if;
  if traits.announce_all then
    perform relevo.announce_messages('relevo.message.sent', array_agg(c.sequence), array_agg(c.place), array_agg(c.sub_queue),
      array_agg(p_ids[c.of]), null, 'all')
    from unnest(p_of, p_places, p_sub_queues, numbers) as c (of, place, sub_queue, sequence) where c.of is not null;
  end if;
  outcome := 'sent';
  sequences := numbers;
  if traits.are_topics then
    sequences := array(
      select f.sequence from generate_series(1, amount) as o (n)
      left join (select c.of, min(c.sequence) as sequence from unnest(p_of, numbers) as c (of, sequence) group by c.of) f on f.of = o.n
      order by o.n);
  end if;
  return next;
end $$;
