-- Claims messages from one or several sources for one holder, as `relevo.messaging.core.claiming` says: whose turn it is between
-- sources (`p_across`: the first with work, and each of the others at least once in twenty claims; or all in turns), then the
-- order of that source. `p_limits` are the slots of consumers, which decide which classes and tenants may be taken:
-- {"free": 3, "classes": {"high": {"base": 8, "reserved": 1, "used": 0, "most": null}}, "key_most": 2, "keys": {"acme": 1}}.
create or replace function relevo.claim_messages(
  p_entities integer[], p_sub_queues smallint[], p_wanted integer, p_token bigint, p_host uuid default null, p_claim bigint default null,
  p_consumers integer default null, p_delete boolean default false, p_across text default 'strict', p_limits jsonb default null)
returns setof relevo.message_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  patience constant integer := 19;
  amount constant integer := cardinality(p_entities);
  left_over integer := p_wanted;
  limits jsonb := p_limits;
  working boolean[];  -- by source: whether it has work
  times_passed integer[] := array_fill(0, array[amount]);
  virtual_times bigint[] := array_fill(0::bigint, array[amount]);
  stored relevo.message_consumers;
  first integer;
  others integer[];
  source integer;
  chunk integer;
  taken relevo.message_notice[];
  got integer;
begin
  if amount = 1 and p_limits is null then
    return query select * from relevo.claim_messages_from(
      p_entities[1], p_sub_queues[1], p_wanted, p_token, p_host, p_claim, p_consumers, p_delete);
    return;
  end if;
  if amount > 1 then perform relevo.lock_tallies(array[p_consumers], p_entities); end if;
  if amount > 1 and p_consumers is not null then
    select * into stored from relevo.message_consumers c where c.id = p_consumers for no key update;
    if cardinality(stored.passed) = amount then times_passed := stored.passed; virtual_times := stored.vtimes; end if;
  end if;
  working := array_fill(true, array[amount]);
  loop
    working := array(
      select s.works and relevo.has_claimable(p_entities[s.n], p_sub_queues[s.n], limits, p_host) from unnest(working) with ordinality as s (works, n));
    exit when left_over <= 0 or not (true = any (working));
    first := array_position(working, true);
    others := array(select n from generate_subscripts(working, 1) as n where working[n] and n > first);
    source := first;
    chunk := left_over;
    if cardinality(others) > 0 and p_across = 'strict' then
      source := coalesce((select n from unnest(others) as n where times_passed[n] >= patience order by times_passed[n] desc, n limit 1), first);
      chunk := case when source = first then patience - (select max(times_passed[n]) from unnest(others) as n) else 1 end;
    elsif cardinality(others) > 0 then
      source := (select n from unnest(first || others) as n order by virtual_times[n], n limit 1);
      chunk := 1;
    end if;
    chunk := least(chunk, left_over, (select min((relevo.allowed_classes(e, limits)).room) from unnest(p_entities) as e));
    taken := array(select c from relevo.claim_messages_from(
      p_entities[source], p_sub_queues[source], chunk, p_token, p_host, p_claim, p_consumers, p_delete,
      case when limits is not null then (relevo.allowed_classes(p_entities[source], limits)).classes end, relevo.full_keys(limits)) as c);
    got := cardinality(taken);
    return query select * from unnest(taken);
    if limits is not null and got > 0 then
      limits := relevo.use_slots(limits, p_entities[source], array_agg(t.class), array_agg(t.fairness_key)) from unnest(taken) as t;
    end if;
    if got > 0 and cardinality(others) > 0 and p_across = 'strict' then
      times_passed := array(
        select case when n <> all (others) then times_passed[n] when n = source then 0 else times_passed[n] + got end
        from generate_subscripts(working, 1) as n order by n);
    elsif got > 0 and cardinality(others) > 0 then
      virtual_times[source] := virtual_times[source] + 232792560;
      virtual_times := array(
        select case when working[n] then virtual_times[n] else greatest(virtual_times[n], (select min(virtual_times[w]) from unnest(first || others) as w)) end
        from generate_subscripts(working, 1) as n order by n);
    end if;
    if got < chunk then working[source] := false; end if;
    left_over := left_over - got;
  end loop;
  if amount > 1 and p_consumers is not null and (stored.passed, stored.vtimes) is distinct from (times_passed, virtual_times) then
    update relevo.message_consumers c set passed = times_passed, vtimes = virtual_times where c.id = p_consumers;
  end if;
end $$;
