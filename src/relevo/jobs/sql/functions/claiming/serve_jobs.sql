-- One round of a host, in one round trip and one commit: settle finished jobs, open gates, make due jobs ready, claim. Without
-- `events` all jobs succeeded, and most of those are plain. A `vacant` host, which holds no job, claims none if a job must
-- run alone: it gets the notice `lone`, and claims that job next.
create or replace function relevo.serve_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[],
  ids uuid[] default '{}', events text[] default '{}', claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', keys text[] default '{}', slots integer[] default '{}',
  singly boolean default false, vacant boolean default false)
returns setof relevo.job_notice language plpgsql volatile set plan_cache_mode = force_generic_plan
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  settled uuid[];
  lone boolean := false;
begin
  -- Few jobs must run alone; whether any does costs a look at an index, the function a tenth of a claim.
  if exists (select from relevo.job j where j.handler = any (handlers) and j.alone and j.status = 0 and not j.chained and not j.capped) then
    lone := cardinality(relevo.lone_jobs(handlers)) > 0;
  end if;
  if cardinality(ids) > 0 then
    if cardinality(events) = 0 and cardinality(keys) = 0 then
      if exists (select from relevo.job_parcel p where p.host = p_host) then
        settled := relevo.end_parcelled_jobs(p_host, ids, claims, friendlies, results, seconds);
      end if;
      if coalesce(cardinality(settled), 0) < cardinality(ids) then
        settled := settled || relevo.end_plain_jobs(p_host, ids, claims, friendlies, results, seconds);
      end if;
    end if;
    if coalesce(cardinality(settled), 0) < cardinality(ids) then
      if cardinality(events) = 0 then events := array_fill('done'::text, array[cardinality(ids)]); end if;
      if cardinality(keys) > 0 then perform relevo.lock_job_gates(keys); end if;
      settled := settled || array(
        select m.id from relevo.move_jobs(ids, events, p_host, claims, postpones, delays, errors, messages, friendlies, results,
                                          saves, seconds, keys => keys) as m);
    end if;
    if coalesce(cardinality(settled), 0) < cardinality(ids) then
      return query
        select 'stale', g.id, null::smallint, g.claim, null::text, null::text, null::text, null::text, null::integer,
          null::integer, null::float8, null::text, null::uuid[], null::text[]
        from unnest(ids, claims) as g (id, claim)
        where not (g.id = any (coalesce(settled, '{}')));
    end if;
  else
    -- If a server crash loses a claim, the job is claimed again, and the old fence matches no row.
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if cardinality(ids) = 0 and (select sum(r) from unnest(rooms) as r) >= relevo.parcel_min() then
    -- Large claims take turns: skipping rows that another claim has locked costs more than waiting for its commit.
    perform pg_advisory_xact_lock(1380273162, hashtext(l.name)) from (select unnest(lanes) as name order by 1) as l;
  end if;
  if exists (select from relevo.job_gate) then perform relevo.open_noted_job_gates(); end if;
  if exists (select from relevo.job j where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event) then
    perform relevo.make_jobs_due(500);
  end if;
  -- A statement of a host that has ended claims nothing: its jobs would only count as crashed.
  if cardinality(lanes) > 0 and not (lone and vacant) and exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then
    if exists (select from relevo.job_parcel q where q.host is null and q.handler = any (serve_jobs.handlers)) then
      return query
        select * from relevo.claim_jobs_in_order(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly);
    else
      return query
        select * from relevo.claim_job_rows(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly);
    end if;
  end if;
  return query
    select 'asked', j.id, case when j.deleted then -1::smallint else j.status end, j.claim, null::text, null::text, null::text,
      null::text, null::integer, null::integer, null::float8, null::text, null::uuid[], null::text[]
    from relevo.job j where j.host = p_host and j.host is not null and (j.status <> 20 or j.deleted);
  if exists (select from relevo.job_brake) then
    return query
      select 'braked', b.probe, null::smallint, null::bigint, null::text, h.name, null::text, null::text, null::integer,
        null::integer, null::float8, null::text, null::uuid[], null::text[]
      from relevo.job_brake b cross join lateral unnest(b.handlers) as h (name);
  end if;
  if lone then
    return query
      select 'lone', null::uuid, null::smallint, null::bigint, null::text, null::text, null::text, null::text, null::integer,
        null::integer, null::float8, null::text, null::uuid[], null::text[];
  end if;
end $$;
