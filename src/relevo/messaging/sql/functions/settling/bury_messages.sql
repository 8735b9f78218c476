-- Dead-letters waiting messages, whose rows the caller has locked.
create or replace function relevo.bury_messages(p_sequences bigint[], p_reason text, p_description text) returns void
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  moves relevo.message_move[];
begin
  select array_agg((m.sequence, m.session, 'bury', 'dead', m.delivery_count, null, null, null)::relevo.message_move) into moves
  from relevo.message m where m.sequence = any (p_sequences);
  with buried as (
    update relevo.message m set sub_queue = 1, rank = 0, state = 0, session = null, visible_at = null,
      expires_at = relevo.now() + make_interval(secs => e.dead_letter_ttl),
      dead = jsonb_build_object('reason', p_reason, 'description', p_description, 'source', e.path)::text
    from relevo.message_entity e where m.sequence = any (p_sequences) and e.id = m.entity_id
    returning m.entity_id, m.class, m.size
  )
  insert into relevo.message_delta (entity_id, sub_queue, class, active, bytes, dead_lettered, expired)
  select b.entity_id, v.sub_queue, b.class, sum(v.sign), sum(v.sign * b.size), sum(v.letters),
    case when p_reason = 'TTLExpiredException' then sum(v.letters) else 0 end
  from buried b cross join (values (0::smallint, -1, 1), (1::smallint, 1, 0)) as v (sub_queue, sign, letters)
  group by b.entity_id, v.sub_queue, b.class;
  perform relevo.after_moves(moves);
end $$;
