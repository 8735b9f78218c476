-- Returns dead-lettered messages of an entity or of its transfers (`p_sub_queue`) to the entity itself, as if they arrived now: those
-- with these numbers, or the oldest, up to a limit; locked ones stay. Their time to live is the default of the entity. If the
-- entity forwards, they are forwarded anew. Returns the new numbers, without those of messages that still cannot be forwarded. A message
-- counts in its property RelevoRedriven how often this happened.
create or replace function relevo.redrive_messages(
  p_entity integer, p_sub_queue smallint, p_sequences bigint[] default null, p_limit integer default 1000, p_reset_count boolean default true)
returns bigint[] language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  entity relevo.message_entity;
  letters bigint[];
  keys text[];
  sessions bigint[];
  numbers bigint[];
begin
  perform pg_advisory_xact_lock_shared(1380273169, p_entity);
  select * into entity from relevo.message_entity e where e.id = p_entity;
  if not found or p_sub_queue = 0 then return '{}'; end if;
  select array_agg(l.sequence order by l.sequence), array_agg(l.head::jsonb ->> 'session_id' order by l.sequence) into letters, keys from (
    select m.sequence, m.head from relevo.message m
    where m.entity_id = p_entity and m.sub_queue = p_sub_queue and m.state in (0, 2, 5) and (p_sequences is null or m.sequence = any (p_sequences))
    order by m.sequence limit p_limit) l;
  if letters is null then return '{}'; end if;
  if entity.has_sessions then
    sessions := (relevo.join_sessions(array_fill(1, array[cardinality(letters)]), array_fill(p_entity, array[cardinality(letters)]),
      array_fill(0::smallint, array[cardinality(letters)]), keys, '{}')).sessions;
  end if;
  if entity.fair then perform relevo.lock_tally(p_entity); end if;
  letters := array(
    select m.sequence from relevo.message m where m.sequence = any (letters) and m.sub_queue = p_sub_queue and m.state in (0, 2, 5)
      and (not entity.has_sessions or m.head::jsonb ->> 'session_id' is not null)
    order by m.sequence for update);
  if cardinality(letters) = 0 then return '{}'; end if;
  update relevo.message m set delivered = false, breached = false, enqueued_sequence = coalesce(m.enqueued_sequence, m.sequence),
    delivery_count = case when p_reset_count then 0 else m.delivery_count end, hops = 0,
    session = s.id,
    head = jsonb_set(coalesce(m.head::jsonb, '{}'), '{properties}', coalesce(m.head::jsonb -> 'properties', '{}') || jsonb_build_object(
      'RelevoRedriven', coalesce((m.head::jsonb -> 'properties' ->> 'RelevoRedriven')::integer, 0) + 1))::text
  from relevo.message o left join relevo.message_session s
    on entity.has_sessions and s.entity_id = p_entity and s.key = o.head::jsonb ->> 'session_id'
  where o.sequence = any (letters) and m.sequence = o.sequence;
  numbers := relevo.renumber_messages(letters);
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  if entity.forward_to is not null then
    perform relevo.forward_messages(numbers, array_fill(entity.forward_to, array[cardinality(numbers)]));
    numbers := array(
      select n from unnest(numbers) as n
      where not exists (select from relevo.message m where m.sequence = n and m.entity_id = p_entity and m.sub_queue = 2));
  end if;
  return numbers;
end $$;
