-- Settles messages by their locks, one event each; returns the numbers of those whose lock was good. Settlements of receivers are
-- remembered for a minute: the same again succeeds.
create or replace function relevo.settle_messages(
  p_sequences bigint[], p_tokens bigint[], p_events text[], p_until timestamptz[] default '{}', p_delays float8[] default '{}',
  p_reasons text[] default '{}', p_descriptions text[] default '{}', p_checkpoints bytea[] default '{}', p_remember boolean default false)
returns bigint[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  good bigint[];
  lost bigint[];
begin
  if not exists (select from unnest(p_events) as e where e <> 'complete') then
    good := relevo.complete_messages(p_sequences, p_tokens);
  else
    good := array(
      select t.sequence from unnest(p_sequences, p_tokens) as g (sequence, token)
      join relevo.message t on t.sequence = g.sequence and t.token = g.token and (t.locked_until is null or t.locked_until > at)
      order by t.sequence for update of t);
    if exists (select from unnest(p_events) as e where e = 'renew') then perform relevo.renew_messages(
      array(select g.sequence from unnest(p_sequences, p_events) as g (sequence, event) where g.event = 'renew' and g.sequence = any (good)));
    end if;
    perform relevo.move_messages(array_agg(g.sequence), array_agg(g.event), array_agg(coalesce(g.until, at + make_interval(secs => g.delay))),
      array_agg(g.reason), array_agg(g.description), array_agg(g.checkpoint))
    from unnest(p_sequences, p_events, p_until, p_delays, p_reasons, p_descriptions, p_checkpoints)
      as g (sequence, event, until, delay, reason, description, checkpoint)
    where g.sequence = any (good) and g.event not in ('complete', 'renew');
    perform relevo.complete_messages(array_agg(g.sequence), array_agg(g.token))
    from unnest(p_sequences, p_tokens, p_events) as g (sequence, token, event)
    where g.sequence = any (good) and g.event = 'complete' having count(*) > 0;
  end if;
  if not p_remember then return good; end if;
  if cardinality(good) < cardinality(p_sequences) then
    lost := array(select g.sequence from unnest(p_sequences, p_tokens, p_events) as g (sequence, token, event)
      where not (g.sequence = any (good)) and exists (
        select from relevo.message_settled s cross join unnest(s.sequences, s.tokens) as t (sequence, token)
        where s.sequences @> array[g.sequence] and s.at > at - interval '60 seconds' and s.event = g.event
          and t.sequence = g.sequence and t.token = g.token));
  end if;
  insert into relevo.message_settled (sequences, tokens, event)
  select array_agg(g.sequence), array_agg(g.token), g.event from unnest(p_sequences, p_tokens, p_events) as g (sequence, token, event)
  where g.sequence = any (good) and g.event <> 'renew' group by g.event;
  return good || coalesce(lost, '{}');
end $$;
