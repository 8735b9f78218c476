-- Asks handlers of consumers to make room for waiting messages, as `relevo.messaging.core.preempting` says: one for each, the lowest
-- class and of that the one that has run for the shortest time, on any host. Called by a host without a free slot; if another one
-- has a slot, nobody is asked. Returns the hosts of those that were asked.
create or replace function relevo.ask_preemption(p_consumers integer, p_gap integer, p_min_run float8, p_max_preemptions integer, p_most integer default 16)
returns setof uuid language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  served relevo.message_consumers;
  waiting record;
  victim record;
begin
  if not exists (
    select from relevo.message_consumers c join relevo.message_class k on k.entity_id = any (c.sources) and k.preempts
    where c.id = p_consumers and exists (
      select from relevo.message m
      where m.entity_id = k.entity_id and m.sub_queue = 0 and m.class = k.number and m.state = 0 and not m.asks)
  ) then
    return;
  end if;
  select * into served from relevo.message_consumers c where c.id = p_consumers for update;  -- one look at a time
  if served.state = 'paused' and (served.until is null or served.until > at) then return; end if;
  if (select sum(r.slots) from relevo.message_replica r join relevo.host h on h.incarnation = r.host and h.ended_at is null
      where r.consumers = p_consumers)
     > (select count(*) from relevo.message_replica r join relevo.message m on m.host = r.host and m.consumers = p_consumers
        where r.consumers = p_consumers) then
    return;
  end if;
  for waiting in
    select m.sequence, k.base
    from relevo.message_entity e join relevo.message_class k on k.entity_id = e.id and k.preempts
    cross join lateral (
      select m.sequence, m.rank from relevo.message m
      where m.entity_id = e.id and m.sub_queue = 0 and m.class = k.number and m.state = 0 and not m.asks
        and (m.expires_at is null or m.expires_at > at)
      order by m.rank, m.sequence limit p_most) m
    where e.id = any (served.sources) and e.status in ('active', 'send_disabled')
    order by k.base desc, m.rank, m.sequence limit p_most
  loop
    perform from relevo.message m where m.sequence = waiting.sequence and m.state = 0 for update skip locked;
    continue when not found;
    select m.sequence, m.host into victim
    from relevo.message_replica r join relevo.message m on m.host = r.host and m.consumers = p_consumers
    join relevo.message_class k on k.entity_id = m.entity_id and k.number = m.class
    where r.consumers = p_consumers and m.state = 1 and k.preemptible and waiting.base - k.base >= p_gap
      and m.locked_at <= at - make_interval(secs => p_min_run) and m.preempt_count < p_max_preemptions and not m.preempt_asked
    order by k.base, m.locked_at desc, m.sequence limit 1 for update of m skip locked;
    exit when not found;
    update relevo.message m set preempt_asked = m.sequence = victim.sequence, asks = m.sequence = waiting.sequence
    where m.sequence in (victim.sequence, waiting.sequence);
    return next victim.host;
  end loop;
end $$;
