-- Stores checkpoints of held messages; returns those whose lock was good, and whether their handlers are to make room.
create or replace function relevo.save_messages(p_sequences bigint[], p_tokens bigint[], p_checkpoints bytea[])
returns table (sequence bigint, asked boolean) language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  -- A statement by itself: the next one sees the rows as they are once they are locked, also if somebody has just marked one.
  perform from relevo.message t where t.sequence = any (p_sequences) order by t.sequence for update;
  return query
  update relevo.message m set checkpoint = g.checkpoint
  from unnest(p_sequences, p_tokens, p_checkpoints) as g (sequence, token, checkpoint)
  where m.sequence = g.sequence and m.token = g.token and (m.locked_until is null or m.locked_until > relevo.now())
  returning m.sequence, m.preempt_asked;
end $$;
