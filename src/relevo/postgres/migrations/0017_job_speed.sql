-- description: jobs that most hosts have most of the time are claimed and settled with less work
-- locks: relevo.job while an index is made of the few rows that something is asked of

-- What is asked of running jobs: pause, cancel, delete. Few rows, where the index by host has all, and those
-- that are gone until it is vacuumed.
create index job_asked on relevo.job (host) where host is not null and (status <> 20 or deleted);

-- Claims jobs lane by lane: of every handler that the host has, the first; the claim takes what it reads.
-- A claimed row of a series leaves the next one waiting. The order of the answer is that of the claims.
create or replace function relevo.claim_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[])
returns setof relevo.job_work language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  places tid[];
  recurs boolean;
begin
  with served as materialized (
    select h.lane, h.handler, l.room, count(*) over (partition by h.lane) as siblings,
      b.extension is not null as braked, b.probe
    from unnest(lanes, rooms) as l (lane, room)
    join unnest(handler_lanes, handlers) as h (lane, handler) on h.lane = l.lane
    left join relevo.job_brake b on h.handler = any (b.handlers) and h.lane = any (b.lanes)
    where l.room > 0
  ), wanted as materialized (
    select lane, handler, room as amount, braked, probe from served where siblings = 1
    union all
    select lane, handler, count(*), braked, probe from (
      select s.lane, s.handler, s.room, s.braked, s.probe, row_number() over (partition by s.lane order by c.rank, c.sequence) as nth
      from served s cross join lateral (
        select j.rank, j.sequence from relevo.job j
        where j.lane = s.lane and j.handler = s.handler and j.status = 0 and not j.chained and not j.capped
          and (not s.braked or j.id = s.probe)
        order by j.rank, j.sequence limit s.room
      ) c where s.siblings > 1
    ) n where n.nth <= n.room group by lane, handler, braked, probe
  )
  select array_agg(c.place order by c.rank, c.sequence), bool_or(c.recurs) into places, recurs
  from wanted w cross join lateral (
    select j.ctid as place, j.rank, j.sequence, j.series is not null as recurs from relevo.job j
    where j.lane = w.lane and j.handler = w.handler and j.status = 0 and not j.chained and not j.capped
      and (not w.braked or j.id = w.probe)
    order by j.rank, j.sequence limit w.amount
    for update skip locked
  ) c;
  if places is null then return; end if;
  return query
  update relevo.job j set
    status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1,
    started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1
  from unnest(places) as p (place) where j.ctid = p.place  -- in this order
  returning 'claimed', j.id, j.status, j.deleted, j.claim, j.lane, j.handler, j.name, j.data, j.attempt, j.retries, j.crashes,
    j.operation_type, j.chain, j.token, j.owner, j.saved, j.depth, j.correlation, j.correlation_at, j.created_at, j.series,
    j.nominal, j.regarding_type, j.regarding_id, j.message_name, j.details;
  if recurs then
    perform set_config('synchronous_commit', 'on', true);
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name, data, token,
      owner, created_by, modified_by, retain, auto_delete, system, hold, depth, correlation, correlation_at, extension,
      message_name, regarding_type, regarding_id, series, pattern, anchor, zone, nominal, details)
    select m.id, 0, at, at, 10, g.next_at, g.priority, g.operation_type, g.lane, g.handler, g.name, g.data, g.token,
      g.owner, g.created_by, g.modified_by, g.retain, g.auto_delete, g.system, g.hold, 1, m.id, at, g.extension,
      g.message_name, g.regarding_type, g.regarding_id, g.series, g.pattern, g.anchor, g.zone, g.next_at,
      g.details || jsonb_build_object('ordinal', g.details -> 'next_ordinal')
    from relevo.job g cross join lateral (select relevo.uuid7() as id where g.id is not null) as m
    where g.host = p_host and g.claim = p_claim and g.series is not null and g.attempt = 1 and g.next_at is not null;
  end if;
end $$;

-- As before (0012). What only ends jobs does not look for those that go on, and lanes are read once.
create or replace function relevo.move_jobs(
  ids uuid[], events text[], p_host uuid default null, claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', p_user uuid default null,
  audit boolean default false, keys text[] default '{}')
returns table (id uuid, before smallint, after smallint, version bigint, host uuid)
language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
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
  -- A row whose status changed between the look and the lock is judged again.
  for round in 1 .. 4 loop
    with given as materialized (
      select g.* from unnest(ids, events, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds)
        as g (id, event, claim, postpone, delay, error, message, friendly, result, saved, seconds)
      where round = 1 or g.id = any (pending)
      order by g.id  -- as everybody locks rows
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
        series, pattern, anchor, zone, nominal, details)
      select id, sequence, rank, version + 1, created_at, at, started_at, at, postpone_until, run_seconds + coalesce(seconds, 0),
        attempt, retries, crashes + (event = 'crash_out')::integer, operation_type, depth,
        case when to_status = 30 then null else coalesce(error, error_code) end,
        case when to_status = 30 then 1 else progress end, to_status, priority, retain, auto_delete, system, hold, lane,
        handler, name, data, host_name, chain, token, owner, created_by, coalesce(p_user, modified_by), coalesce(state, saved),
        answer, case when to_status = 30 then told else coalesce(told, message) end, coalesce(friend, friendly), message_name,
        extension, regarding_type, regarding_id, correlation, correlation_at, request, series, pattern, anchor, zone,
        nominal, details
      from gone
      where to_status > 0 and not deleted and not (to_status = 30 and auto_delete and not retain)
    ), turned as (
      update relevo.job j set
        status = t.to_status, version = j.version + 1, modified_at = at, modified_by = coalesce(p_user, j.modified_by),
        host = case when t.to_status >= 20 then j.host end, claim = case when t.to_status >= 20 then j.claim end,
        postpone_until = case
          -- A client's later instant counts, and no delay leads out of the calendar.
          when g.event = 'retry' then greatest(at + make_interval(secs => least(coalesce(g.delay, 30), 1e9)), case when j.status = 21 then j.postpone_until end)
          when g.event in ('postpone', 'brake', 'await') then g.postpone
          when g.event in ('pause', 'suspend', 'hold', 'resume') then null
          else j.postpone_until end,
        waiting_event = case when g.event = 'await' then true when g.event in ('resume', 'signal', 'postpone') then false else j.waiting_event end,
        retries = j.retries + (g.event = 'retry')::integer, crashes = j.crashes + (g.event = 'lost' and j.status = 20)::integer,
        run_seconds = j.run_seconds + coalesce(g.seconds, 0), error_code = case when g.event = 'await' then null else coalesce(g.error, j.error_code) end,
        message = coalesce(g.message, j.message), friendly = coalesce(g.friendly, j.friendly), saved = coalesce(g.saved, j.saved),
        deleted = j.deleted or g.event = 'delete',
        capped = case when t.to_status >= 20 then j.capped else l.owner_cap is not null and j.owner is not null end
      from given g, relevo.job_transition t, relevo.job_lane l
      where j.id = g.id and t.from_status = j.status and t.event = g.event and t.to_status between 0 and 22
        and not (j.deleted and g.event <> 'delete') and l.name = j.lane
        and not ending and g.event not in ('done', 'fail', 'stop')  -- these only end jobs
        and (p_host is null or (j.host = p_host and j.claim = g.claim))
      returning j.*, g.event, t.from_status, l.told as lane_told
    )
    select array_agg(row(id, event, before, after, version, host, lane, owner, chain, chained, capped, name, operation_type,
                         attempt, host_name, error_code, created_at, started_at, series, hold, system, details)::relevo.job_move)
             filter (where audit or chain is not null or system or series is not null or told),
           array_agg(id), array_agg(before), array_agg(after), array_agg(version), array_agg(host)
    into more, more_ids, more_befores, more_afters, more_versions, more_hosts
    from (
      select id, event, status as before, case when deleted then -1 else to_status end as after, version + 1 as version, host, lane, owner, chain, chained, capped,
             name, operation_type, attempt, host_name, coalesce(error, error_code) as error_code, created_at, started_at, series, hold, system, details,
             lane = any (tell_ends) as told
      from gone
      union all
      select id, event, from_status, status, version, host, lane, owner, chain, chained, capped, name, operation_type, attempt,
             host_name, error_code, created_at, started_at, series, hold, system, details, lane_told > 1
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

-- Ends jobs that succeeded in the name of their host, those from which nothing follows but a record and an event: most
-- jobs, at a third less than by `relevo.move_jobs`. Answers which; the others are left as they are.
create function relevo.end_plain_jobs(
  p_host uuid, ids uuid[], claims bigint[], friendlies text[], results text[], seconds float8[])
returns uuid[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  plain text[] := array(select name from relevo.job_lane where told < 2 and owner_cap is null);
  told text[] := array(select name from relevo.job_lane where told = 1);
  ended uuid[];
  e record;
begin
  with given as materialized (
    select g.* from unnest(ids, claims, friendlies, results, seconds) as g (id, claim, friendly, result, seconds)
    order by g.id  -- as everybody locks rows
  ), gone as (
    delete from relevo.job j using given g
    where j.id = g.id and j.host is not distinct from p_host  -- not by the index of hosts, which has all it holds
      and j.claim = g.claim and j.status = 20 and not j.deleted and not j.system
      and j.chain is null and j.series is null and j.lane = any (plain)
    returning j.*, g.friendly as friend, g.result as answer, g.seconds
  ), kept as (
    insert into relevo.job_history (
      id, sequence, rank, version, created_at, modified_at, started_at, completed_at, postpone_until, run_seconds,
      attempt, retries, crashes, operation_type, depth, progress, status, priority, retain, auto_delete, hold, lane,
      handler, name, data, host_name, token, owner, created_by, modified_by, saved, result, friendly, message_name,
      extension, regarding_type, regarding_id, correlation, correlation_at, request, nominal, details)
    select id, sequence, rank, version + 1, created_at, at, started_at, at, postpone_until, run_seconds + coalesce(seconds, 0),
      attempt, retries, crashes, operation_type, depth, 1, 30, priority, retain, auto_delete, hold, lane,
      handler, name, data, host_name, token, owner, created_by, modified_by, saved, answer, coalesce(friend, friendly), message_name,
      extension, regarding_type, regarding_id, correlation, correlation_at, request, nominal, details
    from gone where retain or not auto_delete
  )
  select array_agg(id) as ids,
    array_agg(id) filter (where lane = any (told)) as told_ids, array_agg(version + 1) filter (where lane = any (told)) as versions,
    array_agg(name) filter (where lane = any (told)) as names, array_agg(lane) filter (where lane = any (told)) as lanes,
    array_agg(operation_type) filter (where lane = any (told)) as types, array_agg(attempt) filter (where lane = any (told)) as attempts,
    array_agg(host_name) filter (where lane = any (told)) as hosts, array_agg(error_code) filter (where lane = any (told)) as errors,
    array_agg(created_at) filter (where lane = any (told)) as created, array_agg(started_at) filter (where lane = any (told)) as started
  into e from gone;
  if e.told_ids is not null then
    perform relevo.announce_jobs(e.told_ids, e.versions, array_fill('succeeded'::text, array[cardinality(e.told_ids)]),
      array_fill(20::smallint, array[cardinality(e.told_ids)]), array_fill(30::smallint, array[cardinality(e.told_ids)]),
      e.names, e.lanes, e.types, e.attempts, e.hosts, e.errors, e.created, e.started);
  end if;
  return coalesce(e.ids, '{}');
end $$;

-- As before (0012). Without events all were done, and most of those are plain; what is asked has its own index.
create or replace function relevo.work_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[],
  ids uuid[] default '{}', events text[] default '{}', claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', keys text[] default '{}')
returns setof relevo.job_work language plpgsql volatile as $$
declare
  got relevo.job_work[];
  settled uuid[];
begin
  if cardinality(ids) > 0 then
    if cardinality(events) = 0 and cardinality(keys) = 0 then
      settled := relevo.end_plain_jobs(p_host, ids, claims, friendlies, results, seconds);
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
        select 'stale', g.id, null::smallint, null::boolean, g.claim, null::text, null::text, null::text, null::text, null::integer,
          null::integer, null::integer, null::integer, null::text, null::text, null::uuid, null::text, null::integer,
          null::uuid, null::timestamptz, null::timestamptz, null::uuid, null::timestamptz,
          null::text, null::text, null::text, null::jsonb
        from unnest(ids, claims) as g (id, claim)
        where not (g.id = any (coalesce(settled, '{}')));
    end if;
  else
    -- A claim that a crash forgets is claimed again, and its fence matches no row.
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if exists (select from relevo.job_gate) then perform relevo.open_noted_job_gates(); end if;
  perform relevo.make_jobs_due(500);
  -- A call that was on its way when its host was found dead claims nothing: it would only count as a crash.
  if cardinality(lanes) > 0 and exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then
    if exists (select from relevo.job_lane l where l.events = 'all' and l.name = any (lanes)) then
      select array_agg(c) into got
      from relevo.claim_jobs(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers) as c;
      return query select (c).* from unnest(got) as c;
      perform relevo.announce_claims(got);
    else
      return query
        select * from relevo.claim_jobs(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers);
    end if;
  end if;
  return query
    select 'asked', j.id, j.status, j.deleted, j.claim, j.lane, j.handler, j.name, null::text, j.attempt, j.retries, j.crashes,
      j.operation_type, j.chain, j.token, j.owner, null::text, j.depth, j.correlation, j.correlation_at, j.created_at, j.series,
      j.nominal, j.regarding_type, j.regarding_id, j.message_name, null::jsonb
    from relevo.job j where j.host = p_host and j.host is not null and (j.status <> 20 or j.deleted);
end $$;
