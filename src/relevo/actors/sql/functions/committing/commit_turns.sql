-- Commits a batch of turns, one row per actor in the first arrays; those after them have one row per change, whose `_of` is
-- the place of the actor. A row is written if the fence of its slot holds, the stored revision is the one it builds on, and
-- the message or occurrence that it handled is still there. Returns the rows that were not written, as `stale` or `conflict`.
--
-- The same batch, with its number, may be given again: what it wrote already counts as written, and nothing is done twice. A
-- row whose revision and number are the batch's was written by it, since no other batch has its number.
create or replace function relevo.commit_turns(
  p_number bigint, p_leases integer[], p_epochs bigint[],
  p_fences integer[], p_actors text[], p_groups text[], p_slots integer[], p_bases bigint[], p_revisions bigint[],
  p_old_incarnations bigint[], p_incarnations bigint[], p_wiped boolean[], p_deleted boolean[], p_schemas integer[], p_documents bytea[],
  p_handled_of integer[], p_handled bigint[],
  p_occurrence_of integer[], p_occurrence_actors text[], p_occurrences text[], p_occurred timestamptz[],
  p_entry_of integer[], p_entry_actors text[], p_maps text[], p_keys text[], p_values bytea[],
  p_reminder_of integer[], p_reminder_actors text[], p_reminder_groups text[], p_reminder_slots integer[], p_reminders text[],
  p_dues timestamptz[], p_reminder_methods text[], p_schedules bytea[], p_payloads bytea[], p_reminder_attempts integer[],
  p_call_of integer[], p_call_actors text[], p_calls text[], p_call_methods text[], p_call_digests bytea[], p_answers bytea[],
  p_message_of integer[], p_receivers text[], p_senders text[], p_message_groups text[], p_message_slots integer[],
  p_message_methods text[], p_bodies bytea[], p_digests text[], p_headers text[], p_attempts integer[], p_on_dead text[],
  p_event_of integer[], p_event_types text[], p_event_schemas smallint[], p_event_subjects text[], p_event_versions bigint[],
  p_event_bodies text[])
returns table (nth integer, outcome text) language plpgsql volatile
set plan_cache_mode = force_generic_plan set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  t timestamptz := relevo.now();
  holds boolean[] := array_fill(true, array[cardinality(p_leases)]);
  may boolean[] := array_fill(true, array[cardinality(p_actors)]);
  written integer[];
begin
  holds := array(
    select s.stale_id is null from unnest(p_leases, p_epochs) with ordinality as f (id, epoch, n)
    left join relevo.stale_fences(p_leases, p_epochs) s on s.stale_id = f.id and s.stale_epoch = f.epoch order by f.n);
  if cardinality(p_handled) + cardinality(p_occurrences) > 0 then
    may := array(
      select g.n <> all (array(
        select h.n from unnest(p_handled_of, p_handled) as h (n, number)
        where not exists (select from relevo.actor_message m where m.number = h.number and m.dead_at is null)
        union all
        select o.n from unnest(p_occurrence_of, p_occurrence_actors, p_occurrences, p_occurred) as o (n, actor, name, due)
        where not exists (select from relevo.actor_reminder r
                          where r.actor = o.actor and r.name = o.name and r.due = o.due and r.dead_at is null)))
      from generate_series(1, cardinality(p_actors)) as g (n) order by g.n);
  end if;
  -- The rows in the order of their ids, as the arrays are: a batch and its own repeat may meet.
  perform from unnest(p_actors) as g (id) cross join lateral (
    select from relevo.actor a where a.id = g.id for update) a;
  with given as materialized (
    select g.* from unnest(
      p_fences, p_actors, p_groups, p_slots, p_bases, p_revisions, p_old_incarnations, p_incarnations, p_wiped, p_deleted,
      p_schemas, p_documents) with ordinality
      as g (fence, id, placement_group, slot, base, revision, old_incarnation, incarnation, wiped, deleted, schema, document, n)
    where holds[g.fence] and may[g.n]
  ), changed as (
    update relevo.actor a set
      revision = g.revision, incarnation = g.incarnation, commit_number = p_number, updated_at = t,
      document = case when g.wiped then g.document else coalesce(g.document, a.document) end,
      schema = case when g.wiped or g.document is not null then g.schema else a.schema end,
      deleted_at = case when g.deleted then t end
    from given g
    where g.base > 0 and a.id = g.id and a.revision = g.base and a.incarnation = g.old_incarnation
    returning g.n
  ), made as (
    insert into relevo.actor (id, placement_group, slot, incarnation, revision, commit_number, updated_at, deleted_at, schema, document)
    select g.id, g.placement_group, g.slot, g.incarnation, g.revision, p_number, t, case when g.deleted then t end, g.schema, g.document
    from given g where g.base = 0 and g.old_incarnation = 0
    on conflict (id) do nothing
    returning id
  )
  select array_agg(w.n) into written from (
    select c.n from changed c union all select g.n from made m join given g on g.id = m.id) w;
  if written is null or cardinality(written) < cardinality(p_actors) then
    may := array(select coalesce(w.n is not null, false) from generate_series(1, cardinality(p_actors)) as g (n)
                 left join (select distinct unnest(written) as n) w on w.n = g.n order by g.n);
    -- A statement by itself: it sees what the batch's first attempt wrote while this one waited for a row.
    return query
      select g.n::integer, case when holds[g.fence] then 'conflict' else 'stale' end
      from unnest(p_fences, p_actors, p_revisions) with ordinality as g (fence, id, revision, n)
      where not may[g.n] and not exists (
        select from relevo.actor a where a.id = g.id and a.revision = g.revision and a.commit_number = p_number);
  else
    may := array_fill(true, array[cardinality(p_actors)]);
  end if;
  if written is null then
    return;
  end if;
  if true = any (p_wiped) then
    perform relevo.wipe_actors(array(
      select g.id from unnest(p_actors, p_wiped) with ordinality as g (id, wiped, n) where g.wiped and may[g.n]));
  end if;
  if cardinality(p_handled) > 0 then
    delete from relevo.actor_message m using unnest(p_handled_of, p_handled) as h (n, number)
    where may[h.n] and m.number = h.number;
  end if;
  if cardinality(p_maps) > 0 then
    insert into relevo.actor_entry as e (actor, map, key, value)
    select g.actor, g.map, g.key, g.value from unnest(p_entry_of, p_entry_actors, p_maps, p_keys, p_values) as g (n, actor, map, key, value)
    where may[g.n] and g.value is not null
    on conflict (actor, map, key) do update set value = excluded.value;
    delete from relevo.actor_entry e
    using unnest(p_entry_of, p_entry_actors, p_maps, p_keys, p_values) as g (n, actor, map, key, value)
    where may[g.n] and g.value is null and e.actor = g.actor and e.map = g.map and e.key = g.key;
  end if;
  if cardinality(p_reminders) > 0 then
    insert into relevo.actor_reminder as r (actor, name, placement_group, slot, due, method, schedule, payload, attempt)
    select g.actor, g.name, g.placement_group, g.slot, g.due, g.method, g.schedule, g.payload, g.attempt
    from unnest(p_reminder_of, p_reminder_actors, p_reminder_groups, p_reminder_slots, p_reminders, p_dues, p_reminder_methods,
                p_schedules, p_payloads, p_reminder_attempts)
      as g (n, actor, placement_group, slot, name, due, method, schedule, payload, attempt)
    where may[g.n] and g.due is not null
    on conflict (actor, name) do update set
      due = excluded.due, method = excluded.method, schedule = excluded.schedule, payload = excluded.payload,
      attempt = excluded.attempt, retry_at = null, dead_at = null, error = null, crashes = null, begun_epoch = null;
    delete from relevo.actor_reminder r
    using unnest(p_reminder_of, p_reminder_actors, p_reminders, p_dues) as g (n, actor, name, due)
    where may[g.n] and g.due is null and r.actor = g.actor and r.name = g.name;
  end if;
  if cardinality(p_calls) > 0 then
    insert into relevo.actor_call (actor, call_id, recorded_at, method, digest, answer)
    select g.actor, g.call_id, t, g.method, g.digest, g.answer
    from unnest(p_call_of, p_call_actors, p_calls, p_call_methods, p_call_digests, p_answers) as g (n, actor, call_id, method, digest, answer)
    where may[g.n]
    on conflict (actor, call_id) do update set  -- of an older one, which was kept longer than it had to be
      recorded_at = excluded.recorded_at, method = excluded.method, digest = excluded.digest, answer = excluded.answer;
  end if;
  if cardinality(p_receivers) > 0 then
    insert into relevo.actor_message (
      sent_at, slot, attempts, on_dead, placement_group, receiver, sender, method, digest, headers, body)
    select t, g.slot, g.attempts, g.on_dead, g.placement_group, g.receiver, g.sender, g.method, g.digest, g.headers, g.body
    from unnest(p_message_of, p_receivers, p_senders, p_message_groups, p_message_slots, p_message_methods, p_bodies, p_digests,
                p_headers, p_attempts, p_on_dead) with ordinality
      as g (n, receiver, sender, placement_group, slot, method, body, digest, headers, attempts, on_dead, place)
    where may[g.n] order by g.place;
  end if;
  for place_from in 1 .. cardinality(p_event_of) by 250 loop  -- the last, for it holds locks of the log to the end
    perform relevo.append_events(
      array_agg(g.type order by g.place), array_agg(g.schema order by g.place), array_agg(g.subject order by g.place),
      array_agg(g.version order by g.place), array_agg(g.body order by g.place))
    from unnest(p_event_of, p_event_types, p_event_schemas, p_event_subjects, p_event_versions, p_event_bodies) with ordinality
      as g (n, type, schema, subject, version, body, place)
    where may[g.n] and g.place between place_from and place_from + 249
    having count(*) > 0;
  end loop;
end $$;
