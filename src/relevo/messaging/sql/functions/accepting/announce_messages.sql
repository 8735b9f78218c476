-- Writes events of messages to the log, if their entity wants them: `p_least` is the level from which on it does.
create or replace function relevo.announce_messages(
  p_type text, p_sequences bigint[], p_entities integer[], p_sub_queues smallint[], p_ids text[], p_details text[], p_least text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.append_events(
    array_agg(p_type), array_agg(1::smallint), array_agg('message/' || g.sequence), array_agg(1::bigint),
    array_agg(jsonb_strip_nulls(jsonb_build_object(
      'entity', e.path, 'sequenceNumber', g.sequence, 'messageId', g.id, 'subQueue', nullif(g.sub_queue, 0))
      || coalesce(g.detail::jsonb, '{}'))::text), pg_backend_pid())
  from unnest(p_sequences, p_entities, p_sub_queues, p_ids, p_details) as g (sequence, entity_id, sub_queue, id, detail)
  join relevo.message_entity e on e.id = g.entity_id and (e.events = 'all' or e.events = p_least)
  having count(*) > 0;
end $$;
