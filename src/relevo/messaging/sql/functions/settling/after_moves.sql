-- What follows when messages have moved: sessions give their next message, dead-lettered ones are announced, and forwarded if
-- their entity says so.
create or replace function relevo.after_moves(moves relevo.message_move[]) returns void language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  sessions bigint[];
  dead bigint[];
begin
  select array_agg(v.sequence) filter (where v.fate in ('dead', 'expired', 'exhausted')) into dead from unnest(moves) as v;
  select array_agg(distinct v.session) filter (where v.session is not null) into sessions from unnest(moves) as v;
  if sessions is not null then perform relevo.open_sessions(sessions); end if;
  if dead is null then return; end if;
  perform relevo.announce_messages('relevo.message.dead_lettered', array_agg(m.sequence), array_agg(m.entity_id), array_agg(m.sub_queue),
    array_agg(m.message_id), array_agg(m.dead), 'dead')
  from relevo.message m where m.sequence = any (dead);
  perform relevo.forward_messages(array_agg(m.sequence), array_agg(e.forward_dead_to))
  from relevo.message m join relevo.message_entity e on e.id = m.entity_id
  where m.sequence = any (dead) and e.forward_dead_to is not null having count(*) > 0;
end $$;
