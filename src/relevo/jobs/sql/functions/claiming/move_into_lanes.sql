-- Moves ready jobs, whose rows the caller has locked, into the lanes in which it serves their handlers: they were stored
-- before a host had declared the handler, or its lane has changed since. Order, cap and chain become those of the new lane,
-- and a job that was stored without a type gets that of its handler. Gates open at once, so that the caller can claim the jobs:
-- otherwise hosts that serve a handler in different lanes would move its jobs back and forth. Locked gates are noted.
create or replace function relevo.move_into_lanes(places tid[], new_lanes text[]) returns void language plpgsql volatile
set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  keys text[];
  free text[];
begin
  with moved as (
    update relevo.job j set lane = n.name, version = j.version + 1, modified_at = relevo.now(),
      rank = j.rank + (o.priority::integer - n.priority::integer) * j.priority * 60000000::bigint,
      operation_type = case when j.operation_type = 54 then coalesce(h.operation_type, 54) else j.operation_type end,
      capped = n.owner_cap is not null and j.owner is not null,
      chain = c.chain, chained = c.chain is distinct from w.chain and c.chain is not null
    from unnest(places, new_lanes) as p (place, lane)
      join relevo.job w on w.ctid = p.place
      join relevo.job_lane o on o.name = w.lane
      join relevo.job_lane n on n.name = p.lane
      left join relevo.job_handler h on h.name = w.handler
      cross join lateral (select case when w.chain = relevo.job_chain(w.token, w.owner, o.shared_tokens)
        then relevo.job_chain(w.token, w.owner, n.shared_tokens) else w.chain end as chain) c
    where j.ctid = p.place
    returning j.owner, j.lane, j.capped, j.chain, w.lane as old_lane, o.owner_cap is not null as was_capped, w.chain as old_chain
  )
  select array_agg(distinct k.key) into keys
  from moved m cross join lateral (values
    (case when m.capped then relevo.job_owner_key(m.lane, m.owner) end),
    (case when m.was_capped then relevo.job_owner_key(m.old_lane, m.owner) end),
    (case when m.chain is distinct from m.old_chain then 'c' || m.chain end),
    (case when m.chain is distinct from m.old_chain then 'c' || m.old_chain end)) as k (key)
  where k.key is not null;
  if keys is null then return; end if;
  free := array(select k from unnest(keys) as k where pg_try_advisory_xact_lock(1380273160, hashtext(k)));
  insert into relevo.job_gate (key) select k from unnest(keys) as k where not (k = any (free));
  perform relevo.open_job_gates(free);
end $$;
