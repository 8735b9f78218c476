-- The only way in which rows of jobs change their status: one element of each array per job, with its event. Writes of a
-- host are fenced by incarnation and claim (`p_host`, `claims`); commands have no fence. Returns a row for each job that
-- moved; a missing job has a stale fence, is gone, or its event was refused. The caller locks the gates before
-- (`relevo.lock_job_gates`).
create or replace function relevo.move_unpacked_jobs(
  ids uuid[], events text[], p_host uuid default null, claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', p_user uuid default null,
  audit boolean default false, keys text[] default '{}')
returns table (id uuid, before smallint, after smallint, version bigint, host uuid)
language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  moved relevo.job_move[];  -- those from which something follows
  more relevo.job_move[];
  moved_ids uuid[] := '{}';
  befores smallint[] := '{}';
  afters smallint[] := '{}';
  new_versions bigint[] := '{}';
  hosts uuid[] := '{}';
  more_ids uuid[];
  more_befores smallint[];
  more_afters smallint[];
  more_versions bigint[];
  more_hosts uuid[];
  left_out uuid[];
  pending uuid[] := ids;
  ending boolean := events <@ array['done', 'fail', 'stop'];  -- nothing stays: half of the work is left out
  tell_ends text[] := array(select name from relevo.job_lane where told > 0);
begin
  -- A row whose status changed between the read and the lock is judged again.
  for round in 1 .. 4 loop
    with given as materialized (
      select g.* from unnest(ids, events, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds)
        as g (id, event, claim, postpone, delay, error, message, friendly, result, saved, seconds)
      where round = 1 or g.id = any (pending)
      order by g.id  -- the order in which every path locks rows
    ), gone as (
      delete from relevo.job j using given g, relevo.job_transition t
      where j.id = g.id and t.from_status = j.status and t.event = g.event
        and (t.to_status >= 30 or t.to_status = -1 or (j.deleted and g.event <> 'delete'))
        and (p_host is null or (j.host = p_host and j.claim = g.claim))
      returning j.*, t.to_status, g.event, g.error, g.message as told, g.friendly as friend, g.result as answer,
                g.saved as state, g.seconds
    ), kept as (
      insert into relevo.job_history (
        id, sequence, rank, version, created_at, modified_at, started_at, completed_at, postpone_until, run_seconds,
        attempt, retries, crashes, operation_type, depth, error_code, progress, status, priority, retain, auto_delete,
        system, hold, lane, handler, name, data, host_name, chain, token, owner, created_by, modified_by, saved, result,
        message, friendly, message_name, extension, regarding_type, regarding_id, correlation, correlation_at, request,
        series, pattern, anchor, zone, nominal, details, batch, origin, attempts)
      select id, sequence, rank, version + 1, created_at, at, started_at, at, postpone_until, run_seconds + coalesce(seconds, 0),
        attempt, retries, crashes + (event = 'crash_out')::integer, operation_type, depth,
        case when to_status = 30 then null else coalesce(error, error_code) end,
        case when to_status = 30 then 1 else progress end, to_status, priority, retain, auto_delete, system, hold, lane,
        handler, name, data, host_name, chain, token, owner, created_by, coalesce(p_user, modified_by), coalesce(state, saved),
        answer, case when to_status = 30 then told else coalesce(told, message) end, coalesce(friend, friendly), message_name,
        extension, regarding_type, regarding_id, correlation, correlation_at, request, series, pattern, anchor, zone,
        nominal, details, batch, origin,
        case when event in ('fail', 'crash_out') then relevo.with_attempt(attempts, event, attempt, host_name, at, seconds, error, told) else attempts end
      from gone
      where to_status > 0 and not deleted and not (to_status = 30 and auto_delete and not retain)
    ), turned as (
      update relevo.job j set
        status = t.to_status, version = j.version + 1, modified_at = at, modified_by = coalesce(p_user, j.modified_by),
        host = case when t.to_status >= 20 then j.host end, claim = case when t.to_status >= 20 then j.claim end,
        postpone_until = case
          -- A client's later instant counts, and no delay leads out of the calendar.
          when g.event in ('retry', 'defer') then greatest(at + make_interval(secs => least(coalesce(g.delay, 30), 1e9)), case when j.status = 21 then j.postpone_until end)
          when g.event in ('postpone', 'brake', 'await') then g.postpone
          when g.event in ('pause', 'suspend', 'hold', 'resume') then null
          else j.postpone_until end,
        waiting_event = case when g.event = 'await' then true when g.event in ('resume', 'signal', 'postpone') then false else j.waiting_event end,
        retries = j.retries + (g.event = 'retry')::integer, crashes = j.crashes + (g.event = 'lost' and j.status = 20)::integer,
        run_seconds = j.run_seconds + coalesce(g.seconds, 0), error_code = case when g.event = 'await' then null else coalesce(g.error, j.error_code) end,
        message = coalesce(g.message, j.message), friendly = coalesce(g.friendly, j.friendly), saved = coalesce(g.saved, j.saved),
        deleted = j.deleted or g.event = 'delete',
        details = case  -- since when no host has known its arguments; a run resets it
          when g.event = 'defer' then jsonb_build_object('deferred_since', at) || coalesce(j.details, '{}')
          when g.event = 'yield' and j.status = 20 and (j.details -> 'asked')::bigint = j.claim then  -- it made room
            (j.details - '{deferred_since,asked}'::text[]) || jsonb_build_object('preempted', coalesce((j.details -> 'preempted')::integer, 0) + 1)
          when g.event in ('retry', 'suspend', 'await', 'yield') then j.details - '{deferred_since,asked}'::text[]
          else j.details end,
        attempts = case when g.event in ('retry', 'lost')
          then relevo.with_attempt(j.attempts, g.event, j.attempt, j.host_name, at, g.seconds, g.error, g.message) else j.attempts end,
        alone = j.alone and g.event not in ('retry', 'suspend', 'await', 'yield'),  -- a run that ended in order
        capped = case when t.to_status >= 20 then j.capped else l.owner_cap is not null and j.owner is not null end
      from given g, relevo.job_transition t, relevo.job_lane l
      where j.id = g.id and t.from_status = j.status and t.event = g.event and t.to_status between 0 and 22
        and not (j.deleted and g.event <> 'delete') and l.name = j.lane
        and not ending and g.event not in ('done', 'fail', 'stop')  -- these only end jobs
        and (p_host is null or (j.host = p_host and j.claim = g.claim))
      returning j.*, g.event, t.from_status, l.told as lane_told
    )
    select array_agg(row(id, event, before, after, version, host, lane, owner, chain, chained, capped, name, operation_type,
                         attempt, host_name, error_code, created_at, started_at, series, hold, system, details,
                         batch)::relevo.job_move)
             filter (where audit or chain is not null or system or series is not null or batch is not null or told),
           array_agg(id), array_agg(before), array_agg(after), array_agg(version), array_agg(host)
    into more, more_ids, more_befores, more_afters, more_versions, more_hosts
    from (
      select id, event, status as before, case when deleted then -1 else to_status end as after, version + 1 as version, host, lane, owner, chain, chained, capped,
             name, operation_type, attempt, host_name, coalesce(error, error_code) as error_code, created_at, started_at, series, hold, system, details, batch,
             lane = any (tell_ends) as told
      from gone
      union all
      select id, event, from_status, status, version, host, lane, owner, chain, chained, capped, name, operation_type, attempt,
             host_name, error_code, created_at, started_at, series, hold, system, details, batch, lane_told > 1
      from turned
    ) m;
    moved := moved || more;
    moved_ids := moved_ids || more_ids;
    befores := befores || more_befores;
    afters := afters || more_afters;
    new_versions := new_versions || more_versions;
    hosts := hosts || more_hosts;
    exit when cardinality(moved_ids) = cardinality(ids);
    select array_agg(j.id) into left_out
    from unnest(ids, events, claims) as g (id, event, claim)
    join relevo.job j on j.id = g.id and (p_host is null or (j.host = p_host and j.claim = g.claim))
    join relevo.job_transition t on t.from_status = j.status and t.event = g.event and t.to_status is not null
    where not (g.id = any (moved_ids));
    exit when left_out is null;
    pending := left_out;
  end loop;
  if moved is not null then perform relevo.after_job_moves(moved, keys, audit); end if;
  return query select * from unnest(moved_ids, befores, afters, new_versions, hosts);
end $$;
