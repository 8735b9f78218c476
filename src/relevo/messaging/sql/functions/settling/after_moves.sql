-- What follows when messages have moved: dead-lettered ones are announced, and forwarded if their entity says so.
create or replace function relevo.after_moves(moves relevo.message_move[]) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  letters bigint[];
begin
  select array_agg(v.sequence) filter (where v.fate in ('dead', 'expired', 'exhausted')) into letters from unnest(moves) as v;
  if letters is null then return; end if;
  perform relevo.announce_messages('relevo.message.dead_lettered', array_agg(m.sequence), array_agg(m.entity_id), array_agg(m.sub_queue),
    array_agg(m.message_id), array_agg(m.dead), 'dead')
  from relevo.message m where m.sequence = any (letters);
  perform relevo.forward_messages(array_agg(m.sequence), array_agg(e.forward_dead_to))
  from relevo.message m join relevo.message_entity e on e.id = m.entity_id
  where m.sequence = any (letters) and e.forward_dead_to is not null having count(*) > 0;
end $$;
