-- Settles messages by their locks, one event each; returns the numbers of those whose lock was good. Settlements of receivers are
-- remembered for a minute: the same again succeeds. A message in a dead-letter queue cannot be dead-lettered again: its number
-- comes back negative, and nothing happens to it. What a host held whose life has ended is lost, even before it is recovered.
create or replace function relevo.settle_messages(
  p_sequences bigint[], p_tokens bigint[], p_events text[], p_until timestamptz[] default '{}', p_delays float8[] default '{}',
  p_reasons text[] default '{}', p_descriptions text[] default '{}', p_checkpoints bytea[] default '{}', p_remember boolean default false)
returns bigint[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  moment timestamptz := relevo.now();
  ended constant uuid[] := relevo.lost_hosts();
  good bigint[];
  picked bigint[];  -- which of the settlements are carried out, counted from 1: the first of each message with a good lock
  refused bigint[] := '{}';
  again bigint[] := '{}';
begin
  if ended = '{}' and not exists (select from unnest(p_events) as e where e <> 'complete') then
    good := relevo.complete_messages(p_sequences, p_tokens);
  else
    good := array(
      select t.sequence from unnest(p_sequences, p_tokens) as g (sequence, token)
      join relevo.message t on t.sequence = g.sequence and t.token = g.token and (t.locked_until is null or t.locked_until > moment)
        and (t.host is null or not (t.host = any (ended)))
      order by t.sequence for update of t);
    picked := array(
      select distinct on (t.sequence) g.n from unnest(p_sequences, p_tokens) with ordinality as g (sequence, token, n)
      join relevo.message t on t.sequence = g.sequence and t.token = g.token
      where t.sequence = any (good) order by t.sequence, g.n);
    refused := array(
      select m.sequence from unnest(picked) as n join relevo.message m on m.sequence = p_sequences[n] and m.sub_queue > 0
      where p_events[n] = 'dead_letter');
    good := array(select g from unnest(good) as g where not (g = any (refused)));
    perform relevo.renew_messages(array_agg(p_sequences[n])) from unnest(picked) as n where p_events[n] = 'renew' having count(*) > 0;
    perform relevo.move_messages(array_agg(p_sequences[n]), array_agg(p_events[n]),
      array_agg(coalesce(p_until[n], moment + make_interval(secs => p_delays[n]))),
      array_agg(p_reasons[n]), array_agg(p_descriptions[n]), array_agg(p_checkpoints[n]))
    from unnest(picked) as n
    where p_events[n] not in ('complete', 'renew') and not (p_sequences[n] = any (refused)) having count(*) > 0;
    perform relevo.complete_messages(array_agg(p_sequences[n]), array_agg(p_tokens[n]))
    from unnest(picked) as n where p_events[n] = 'complete' having count(*) > 0;
  end if;
  if p_remember and cardinality(good) < cardinality(p_sequences) then
    again := array(select g.sequence from unnest(p_sequences, p_tokens, p_events) as g (sequence, token, event)
      where not (g.sequence = any (good)) and exists (
        select from relevo.message_settled s cross join unnest(s.sequences, s.tokens) as t (sequence, token)
        where s.sequences @> array[g.sequence] and s.at > moment - interval '60 seconds' and s.event = g.event
          and t.sequence = g.sequence and t.token = g.token));
  end if;
  if p_remember then
    insert into relevo.message_settled (sequences, tokens, event)
    select array_agg(g.sequence), array_agg(g.token), g.event from unnest(p_sequences, p_tokens, p_events) as g (sequence, token, event)
    where g.sequence = any (good) and g.event <> 'renew' group by g.event;
  end if;
  return good || again || array(select -r from unnest(refused) as r);
end $$;
