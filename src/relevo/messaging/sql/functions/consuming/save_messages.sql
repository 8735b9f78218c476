-- Stores checkpoints of held messages; returns those whose lock was good, and whether their handlers are to make room.
create or replace function relevo.save_messages(p_sequences bigint[], p_tokens bigint[], p_checkpoints bytea[])
returns table (sequence bigint, asked boolean) language sql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  update relevo.message m set checkpoint = g.checkpoint
  from (
    select t.ctid as place, g.checkpoint from unnest(p_sequences, p_tokens, p_checkpoints) as g (sequence, token, checkpoint)
    join relevo.message t on t.sequence = g.sequence and t.token = g.token and (t.locked_until is null or t.locked_until > relevo.now())
    order by t.sequence for update of t) g
  where m.ctid = g.place
  returning m.sequence, m.preempt_asked;
$$;
