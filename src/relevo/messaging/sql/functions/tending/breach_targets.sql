-- Deals with messages that wait longer than the service target of their class and were never delivered, as `on_breach` of the class
-- says: they move to the next class above, to the dead-letter queue, or to another entity. Each is dealt with once. Looks at the
-- next messages of each class, which are about the oldest. Returns how many.
create or replace function relevo.breach_targets(p_limit integer default 500) returns integer language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  target record;
  late bigint[];
  total integer := 0;
begin
  for target in
    select c.entity_id, c.number, c.name, c.slo, c.on_breach, e.path, up.number as up_number, up.low as up_low
    from relevo.message_class c join relevo.message_entity e on e.id = c.entity_id
    left join lateral (
      select o.number, o.low from relevo.message_class o
      where o.entity_id = c.entity_id and o.base > c.base and not o.retired order by o.base limit 1) up on true
    where c.slo is not null and c.on_breach <> 'none' and (c.on_breach <> 'escalate' or up.number is not null)
    order by c.entity_id, c.number
  loop
    late := array(
      select m.sequence from (
        select m.sequence, m.enqueued_at, m.delivered, m.breached from relevo.message m
        where m.entity_id = target.entity_id and m.sub_queue = 0 and m.class = target.number and m.state = 0
        order by m.rank, m.sequence limit p_limit for update skip locked) m
      where not m.delivered and not m.breached and m.enqueued_at < at - make_interval(secs => target.slo));
    continue when cardinality(late) = 0;
    total := total + cardinality(late);
    update relevo.message m set breached = true where m.sequence = any (late);
    perform relevo.append_events(
      array_agg('relevo.slo.breached'::text), array_agg(1::smallint), array_agg('message/' || m.sequence), array_agg(1::bigint),
      array_agg(jsonb_build_object('entity', target.path, 'sequenceNumber', m.sequence, 'messageId', m.message_id,
        'priorityClass', target.name, 'targetSeconds', target.slo)::text), pg_backend_pid())
    from relevo.message m where m.sequence = any (late);
    if target.on_breach = 'escalate' then
      perform relevo.reprioritize_messages(target.entity_id, late, target.up_number, target.up_low);
    elsif target.on_breach = 'dead_letter' then
      perform relevo.bury_messages(late, 'SloExceeded', 'The message waited longer than ' || target.slo || ' seconds.');
    else
      perform relevo.forward_messages(late, array_fill(substring(target.on_breach from 9), array[cardinality(late)]));
    end if;
  end loop;
  return total;
end $$;
