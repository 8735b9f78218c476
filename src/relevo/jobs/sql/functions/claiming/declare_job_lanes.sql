-- Stores the configuration of lanes. If a cap changed, the owners with jobs in the lane are noted;
-- the next claims apply it, some owners at a time.
create or replace function relevo.declare_job_lanes(names text[], p_events text[], priorities boolean[], caps integer[], shared boolean[])
returns void language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare changed text[];
begin
  select array_agg(g.name) into changed
  from unnest(names, caps) as g (name, cap) join relevo.job_lane l on l.name = g.name
  where l.owner_cap is distinct from g.cap;
  insert into relevo.job_lane (name, events, priority, owner_cap, shared_tokens)
  select * from unnest(names, p_events, priorities, caps, shared)
  on conflict (name) do update set events = excluded.events, priority = excluded.priority, owner_cap = excluded.owner_cap,
    shared_tokens = excluded.shared_tokens
  where (relevo.job_lane.events, relevo.job_lane.priority, relevo.job_lane.owner_cap, relevo.job_lane.shared_tokens)
    is distinct from (excluded.events, excluded.priority, excluded.owner_cap, excluded.shared_tokens);
  insert into relevo.job_gate (key)
  select distinct relevo.job_owner_key(j.lane, j.owner) from relevo.job j
  where j.lane = any (changed) and j.owner is not null;
end $$;
