-- Ends succeeded plain jobs of a host, from which only a record and an event follow: most jobs, at two thirds of the cost
-- of `relevo.move_jobs`. Returns their ids; the others are left as they are.
create or replace function relevo.end_plain_jobs(
  p_host uuid, ids uuid[], claims bigint[], friendlies text[], results text[], seconds float8[])
returns uuid[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  plain text[] := array(select name from relevo.job_lane where told < 2 and owner_cap is null);
  told text[] := array(select name from relevo.job_lane where told = 1);
  silent text[] := array(select name from relevo.job_lane where told = 0);
  ended uuid[];
  e record;
begin
  if (select j.auto_delete and not j.retain and j.lane = any (silent) from relevo.job j where j.id = ids[1]) then
    -- As the first, so most others: nothing is kept of them, and nothing of the rows is read.
    with given as materialized (
      select g.* from unnest(ids, claims) as g (id, claim) order by g.id
    ), gone as (
      delete from relevo.job j using given g
      where j.id = g.id and j.host is not distinct from p_host and j.claim = g.claim and j.status = 20 and not j.deleted
        and not j.system and j.chain is null and j.series is null and j.batch is null and j.lane = any (silent) and j.auto_delete and not j.retain
      returning j.id
    )
    select array_agg(id) into ended from gone;
    if cardinality(ended) = cardinality(ids) then return ended; end if;
  end if;
  with given as materialized (
    select g.* from unnest(ids, claims, friendlies, results, seconds) as g (id, claim, friendly, result, seconds)
    order by g.id  -- the order in which every path locks rows
  ), gone as (
    delete from relevo.job j using given g
    where j.id = g.id and j.host is not distinct from p_host  -- not by the index of hosts, which has all it holds
      and j.claim = g.claim and j.status = 20 and not j.deleted and not j.system
      and j.chain is null and j.series is null and j.batch is null and j.lane = any (plain)
    returning j.*, g.friendly as friend, g.result as answer, g.seconds, j.lane = any (told) as tell
  ), kept as (
    insert into relevo.job_history (
      id, sequence, rank, version, created_at, modified_at, started_at, completed_at, postpone_until, run_seconds,
      attempt, retries, crashes, operation_type, depth, progress, status, priority, retain, auto_delete, hold, lane,
      handler, name, data, host_name, token, owner, created_by, modified_by, saved, result, friendly, message_name,
      extension, regarding_type, regarding_id, correlation, correlation_at, request, nominal, details, origin, attempts)
    select id, sequence, rank, version + 1, created_at, at, started_at, at, postpone_until, run_seconds + coalesce(seconds, 0),
      attempt, retries, crashes, operation_type, depth, 1, 30, priority, retain, auto_delete, hold, lane,
      handler, name, data, host_name, token, owner, created_by, modified_by, saved, answer, coalesce(friend, friendly), message_name,
      extension, regarding_type, regarding_id, correlation, correlation_at, request, nominal, details, origin, attempts
    from gone where retain or not auto_delete
  )
  select array_agg(id) as ids,
    array_agg(id) filter (where tell) as told_ids, array_agg(version + 1) filter (where tell) as versions,
    array_agg(name) filter (where tell) as names, array_agg(lane) filter (where tell) as lanes,
    array_agg(operation_type) filter (where tell) as types, array_agg(attempt) filter (where tell) as attempts,
    array_agg(host_name) filter (where tell) as hosts, array_agg(error_code) filter (where tell) as errors,
    array_agg(created_at) filter (where tell) as created, array_agg(started_at) filter (where tell) as started
  into e from gone;
  if e.told_ids is not null then
    perform relevo.announce_jobs(e.told_ids, e.versions, array_fill('succeeded'::text, array[cardinality(e.told_ids)]),
      array_fill(20::smallint, array[cardinality(e.told_ids)]), array_fill(30::smallint, array[cardinality(e.told_ids)]),
      e.names, e.lanes, e.types, e.attempts, e.hosts, e.errors, e.created, e.started);
  end if;
  return coalesce(ended, '{}') || coalesce(e.ids, '{}');
end $$;
