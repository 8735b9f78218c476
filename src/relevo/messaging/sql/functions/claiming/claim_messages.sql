-- Claims messages from one or several sources for one holder, as `relevo.messaging.core.claiming` says: whose turn it is between
-- sources (`p_across`: the first with work, and each of the others at least once in twenty claims; or all in turns), then the
-- order of that source. `p_limits` are the slots of consumers, which decide message by message which classes and tenants may be
-- taken: {"free": 3, "classes": {"high": {"base": 8, "reserved": 1, "used": 0, "most": null}}, "key_most": 2, "keys": {"acme": 1}}.
create or replace function relevo.claim_messages(
  p_entities integer[], p_sub_queues smallint[], p_wanted integer, p_token bigint, p_host uuid default null, p_claim bigint default null,
  p_consumers integer default null, p_delete boolean default false, p_across text default 'strict', p_limits jsonb default null)
returns setof relevo.message_notice language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  patience constant integer := 19;
  amount constant integer := cardinality(p_entities);
  left_over integer := p_wanted;
  limits jsonb := p_limits;
  working boolean[];  -- by source: whether it had work when it was last asked
  times_passed integer[] := array_fill(0, array[amount]);
  virtual_times float8[] := array_fill(0::float8, array[amount]);
  stored relevo.message_consumers;
  classes smallint[];
  keys text[];
  first integer;
  others integer[];
  source integer;
  chunk integer;
  got integer;
  notice relevo.message_notice;
begin
  if amount = 1 and p_limits is null then
    return query select * from relevo.claim_messages_from(
      p_entities[1], p_sub_queues[1], p_wanted, p_token, p_host, p_claim, p_consumers, p_delete);
    return;
  end if;
  if amount > 1 and p_consumers is not null then
    select * into stored from relevo.message_consumers c where c.id = p_consumers for update;
    if cardinality(stored.passed) = amount then times_passed := stored.passed; virtual_times := stored.vtimes; end if;
  end if;
  working := array(
    select exists (select from relevo.message m where m.entity_id = s.entity_id and m.sub_queue = s.sub_queue and m.state = 0)
    from unnest(p_entities, p_sub_queues) with ordinality as s (entity_id, sub_queue, n) order by s.n);
  while left_over > 0 and true = any (working) loop
    first := array_position(working, true);
    others := array(select n from generate_subscripts(working, 1) as n where working[n] and n > first);
    if cardinality(others) = 0 then
      source := first; chunk := left_over;
    elsif p_across = 'strict' then
      source := (select n from unnest(others) as n where times_passed[n] >= patience order by times_passed[n] desc, n limit 1);
      chunk := case when source is null then patience - (select max(times_passed[n]) from unnest(others) as n) else 1 end;
      source := coalesce(source, first);
    else
      source := (select n from unnest(first || others) as n order by virtual_times[n], n limit 1); chunk := 1;
    end if;
    chunk := least(chunk, left_over);
    if limits is not null then
      chunk := 1;
      classes := relevo.allowed_classes(p_entities[source], limits);
      keys := case when limits ? 'key_most' then array(
        select k.key from jsonb_each_text(limits -> 'keys') as k where k.value::integer >= (limits ->> 'key_most')::integer) end;
    end if;
    got := 0;
    for notice in select * from relevo.claim_messages_from(
      p_entities[source], p_sub_queues[source], chunk, p_token, p_host, p_claim, p_consumers, p_delete, classes, keys)
    loop
      got := got + 1;
      return next notice;
      if limits is not null then limits := relevo.use_slot(limits, p_entities[source], notice.class, notice.fairness_key); end if;
    end loop;
    if got > 0 and cardinality(others) > 0 and p_across = 'strict' then
      times_passed := array(
        select case when n <> all (others) then times_passed[n] when n = source then 0 else times_passed[n] + got end
        from generate_subscripts(working, 1) as n order by n);
    elsif got > 0 and cardinality(others) > 0 then
      virtual_times[source] := virtual_times[source] + got;
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
