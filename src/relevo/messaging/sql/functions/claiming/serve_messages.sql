-- One round of a host, in one round trip and one commit: settle what its consumers have finished, claim what is next for each of
-- them. Per consumers: its number, how many it wants, how its sources compete, its limits; `p_sources_of` says to which of them
-- a source belongs, counted from 1. Also answers which of its messages are asked to make room (`preempt`), and which settlements
-- came too late (`stale`).
create or replace function relevo.serve_messages(
  p_host uuid, p_claim bigint, p_consumers integer[], p_wanted integer[], p_across text[], p_limits text[],
  p_sources_of integer[], p_sources integer[],
  p_sequences bigint[] default '{}', p_tokens bigint[] default '{}', p_events text[] default '{}', p_until timestamptz[] default '{}',
  p_delays float8[] default '{}', p_reasons text[] default '{}', p_descriptions text[] default '{}', p_checkpoints bytea[] default '{}')
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  settled bigint[];
  token bigint := ('x' || encode(substring(uuid_send(gen_random_uuid()) from 9 for 8), 'hex'))::bit(64)::bigint;
  mine integer[];
  served relevo.message_consumers;
  wanted integer;
  asking bigint[];
  claimed integer;
  i integer;
begin
  if not exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then  -- it settles and claims nothing
    return query select (('stale', g.sequence, g.token, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                         null, null, null, null, null, null)::relevo.message_notice).*
      from unnest(p_sequences, p_tokens) as g (sequence, token);
    return;
  end if;
  -- If a server crash loses a claim, the message is claimed again, and the old token fits no row.
  if cardinality(p_sequences) = 0 then perform set_config('synchronous_commit', 'off', true); end if;
  if cardinality(p_consumers) > 0 then
    if exists (select from relevo.message_arrival a where a.entity_id = any (p_sources)) then
      perform set_config('synchronous_commit', 'on', true);
      perform relevo.accept_plain_arrivals(p_sources);
    end if;
    perform relevo.lock_tallies(p_consumers, p_sources);
  end if;
  if cardinality(p_sequences) > 0 then
    settled := case when cardinality(p_events) = 0 then relevo.complete_messages(p_sequences, p_tokens)
      else relevo.settle_messages(p_sequences, p_tokens, p_events, p_until, p_delays, p_reasons, p_descriptions, p_checkpoints) end;
    if cardinality(settled) < cardinality(p_sequences) then
      return query select (('stale', g.sequence, g.token, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                           null, null, null, null, null, null)::relevo.message_notice).*
        from unnest(p_sequences, p_tokens) as g (sequence, token) where not (g.sequence = any (settled));
    end if;
  end if;
  if cardinality(p_consumers) > 0 then
    for i in 1 .. cardinality(p_consumers) loop
      select * into served from relevo.message_consumers c where c.id = p_consumers[i];
      continue when served.state = 'paused' and (served.until is null or served.until > relevo.now());
      mine := array(select s.id from unnest(p_sources_of, p_sources) with ordinality as s (of, id, n) where s.of = i order by s.n);
      wanted := p_wanted[i];
      if served.definition -> 'preempt' <> 'null' and p_limits[i] is null then  -- what asked for room goes first
        asking := array(select m.sequence from relevo.message m where m.entity_id = any (mine) and m.asks and m.state = 0
          order by m.sequence limit wanted);
        return query select c.* from (
            select m.entity_id, array_agg(m.sequence) as numbers from relevo.message m where m.sequence = any (asking) group by m.entity_id) g
          cross join lateral relevo.claim_messages_from(
            g.entity_id, 0::smallint, wanted, token, p_host, p_claim, p_consumers[i], false, p_first => g.numbers) c;
        get diagnostics claimed = row_count;
        wanted := wanted - claimed;
      end if;
      continue when wanted < 1;
      if cardinality(mine) = 1 and p_limits[i] is null then
        return query select * from relevo.claim_messages_from(
          mine[1], 0::smallint, wanted, token, p_host, p_claim, p_consumers[i], false);
        continue;
      end if;
      return query select * from relevo.claim_messages(
        mine, array_fill(0::smallint, array[cardinality(mine)]), wanted, token, p_host, p_claim, p_consumers[i], false,
        p_across[i], p_limits[i]::jsonb);
    end loop;
  end if;
  return query select (('preempt', m.sequence, m.token, m.claim, m.entity_id, m.sub_queue, m.consumers, m.class, null, null, null, null, null,
                       null, null, null, null, null, null, null, null, null, null)::relevo.message_notice).*
    from relevo.message m where m.host = p_host and m.host is not null and m.preempt_asked;
end $$;
