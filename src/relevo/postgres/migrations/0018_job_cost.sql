-- description: jobs cost less: what is claimed by the hundred is one parcel, claims have few columns, many submits one handler; lost hosts cost fewer jobs
-- locks: nothing; a table and a type are made, functions and a view made anew

drop function relevo.work_jobs, relevo.claim_jobs, relevo.announce_claims;
drop type relevo.job_work;

-- What a host is told of jobs: `stale` (a settlement was refused), `claimed`, or `asked` (something is asked of a job it
-- runs: pause, cancel, or with status -1 that it is deleted). `particulars` is null for most jobs: a client spends more
-- time on columns than on jobs.
create type relevo.job_work as (
  kind text, id uuid, status smallint, claim bigint, lane text, handler text, name text, data text, attempt integer,
  operation_type integer, created float8, particulars text);

-- What few jobs have; keys are the fields of `relevo.jobs.running.claims.Claim`.
create function relevo.job_particulars(j relevo.job) returns text language sql stable
return jsonb_strip_nulls(jsonb_build_object(
  'owner', j.owner, 'chain', j.chain, 'series', j.series, 'nominal', j.nominal, 'saved', j.saved, 'token', j.token,
  'retries', j.retries, 'crashes', j.crashes, 'depth', j.depth, 'root', j.correlation, 'root_at', j.correlation_at,
  'regarding_type', j.regarding_type, 'regarding_id', j.regarding_id,
  'details', j.details::text))::text;

-- Jobs that a host claimed together: a parcel is one row, where each of them would be a new version of its own in the
-- table and in two of its indexes. They are in progress, and seen as that (relevo.live_job). What follows for
-- one of them but its success takes it out and makes a row of it again (relevo.unpack_jobs), so nobody else need know.
-- Lock order: parcels by host and claim, then rows of jobs by id.
create table relevo.job_parcel (
  host      uuid not null,
  claim     bigint not null,
  host_name text not null,
  taken_at  timestamptz not null,
  size      integer not null,
  keeps     boolean not null,
  lanes     text[] not null,
  done      uuid[] not null default '{}',
  ids       uuid[] not null,
  jobs      relevo.job[] not null,
  primary key (host, claim)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0);
comment on column relevo.job_parcel.keeps is 'whether a record of any of them is kept when it succeeds';
comment on column relevo.job_parcel.done is 'which of them were settled or taken out';
comment on column relevo.job_parcel.jobs is 'their rows as they were before the claim';
alter table relevo.job_parcel alter done set storage external, alter ids set storage external, alter jobs set storage external;

-- From how many jobs on a claim is a parcel: fewer are found by their keys and indexes.
create function relevo.parcel_min() returns integer language sql immutable return 100;

-- The jobs of a parcel that are still in it, as rows that are claimed.
create function relevo.parcelled_jobs(p relevo.job_parcel) returns setof relevo.job language sql stable
begin atomic
  select j.id, j.sequence, j.rank, j.version + 1, j.created_at, p.taken_at, coalesce(j.started_at, p.taken_at), j.completed_at,
    j.postpone_until, p.claim, j.run_seconds, j.attempt + 1, j.retries, j.crashes, j.operation_type, j.depth, j.error_code,
    j.progress, 20::smallint, j.priority, j.chained, j.capped, j.waiting_event, j.retain, j.auto_delete, j.system, j.hold,
    j.deleted, p.host, j.lane, j.handler, j.name, j.data, p.host_name, j.chain, j.token, j.owner, j.created_by, j.modified_by,
    j.saved, j.result, j.message, j.friendly, j.message_name, j.extension, j.regarding_type, j.regarding_id, j.correlation,
    j.correlation_at, j.request, j.series, j.pattern, j.anchor, j.zone, j.nominal, j.next_at, j.details
  from unnest(p.jobs) as j left join unnest(p.done) as d (id) on d.id = j.id where d.id is null;
end;

-- Jobs that are not completed, as people see them: a running job that was deleted is gone.
create view relevo.live_job as
  select * from relevo.job where not deleted
  union all
  select j.* from relevo.job_parcel p cross join lateral relevo.parcelled_jobs(p) as j;

create or replace view relevo.jobs as
  select * from relevo.live_job
  union all
  select * from relevo.job_history;

-- Whether a job is in a parcel; cheaper than to look at the parcel's rows.
create function relevo.is_parcelled(job uuid) returns boolean language sql stable
return exists (select from relevo.job_parcel p where job = any (p.ids) and not (job = any (p.done)));

-- Whether a job is not completed yet.
create function relevo.is_live(job uuid) returns boolean language sql stable
return exists (select from relevo.job j where j.id = job and not j.deleted) or relevo.is_parcelled(job);

-- Takes jobs out of parcels: they are rows again, held by the same host under the same claim. Answers how many were.
create function relevo.unpack_jobs(wanted uuid[]) returns integer language plpgsql volatile as $$
declare
  p relevo.job_parcel;
  taken uuid[];
  unpacked integer := 0;
begin
  if not exists (select from relevo.job_parcel) then return 0; end if;
  for p in
    select * from relevo.job_parcel q
    where exists (
      select from unnest(q.ids) as i (id) join unnest(wanted) as w (id) on w.id = i.id
      left join unnest(q.done) as d (id) on d.id = i.id where d.id is null)
    order by q.host, q.claim for update
  loop
    with made as (
      insert into relevo.job select j.* from relevo.parcelled_jobs(p) as j where j.id = any (wanted) returning id
    )
    select array_agg(id) into taken from made;
    if taken is null then continue; end if;
    perform relevo.shrink_parcel(p.host, p.claim, taken);
    unpacked := unpacked + cardinality(taken);
  end loop;
  return unpacked;
end $$;

-- Notes that jobs are no longer in a parcel, whose row is locked; an empty one goes.
create function relevo.shrink_parcel(p_host uuid, p_claim bigint, gone uuid[]) returns void language plpgsql volatile as $$
begin
  delete from relevo.job_parcel p
  where p.host = p_host and p.claim = p_claim and cardinality(p.done) + cardinality(gone) >= p.size;
  if not found then
    update relevo.job_parcel p set done = p.done || gone where p.host = p_host and p.claim = p_claim;
  end if;
end $$;

-- Unpacks parcels of a host: all, or those of some claims.
create function relevo.unpack_parcels(p_host uuid, claims bigint[] default null) returns void language plpgsql volatile as $$
begin
  perform relevo.unpack_jobs(p.ids) from relevo.job_parcel p
  where p.host = p_host and (claims is null or p.claim = any (claims)) order by p.claim;
end $$;

-- As before (0012). If ended hosts have parcels, some of them are unpacked and nothing else is done, which is answered by
-- -1: the commit is to come before anybody waits for gates.
alter function relevo.recover_jobs rename to recover_job_rows;
create function relevo.recover_jobs(amount integer, crashes_max integer) returns integer language plpgsql volatile as $$
declare
  p record;
  unpacked boolean := false;
begin
  for p in
    select q.host, q.claim from relevo.job_parcel q
    where not exists (select from relevo.host x where x.incarnation = q.host and x.ended_at is null)
    order by q.host, q.claim limit 10
  loop
    perform relevo.unpack_parcels(p.host, array[p.claim]);
    unpacked := true;
  end loop;
  return case when unpacked then -1 else relevo.recover_job_rows(amount, crashes_max) end;
end $$;

-- Ends jobs of parcels that succeeded, in the name of their host; answers which. Where no record is kept and nothing is
-- told, their rows are not even read.
create function relevo.end_parcelled_jobs(
  p_host uuid, given uuid[], claims bigint[], friendlies text[], results text[], p_seconds float8[])
returns uuid[] language plpgsql volatile set enable_nestloop = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  told text[];
  ended uuid[] := '{}';
  mine uuid[];
  p record;
  e record;
begin
  for p in
    select q.claim, q.keeps, q.lanes, q.done from relevo.job_parcel q
    where q.host = p_host and q.claim = any (array(select distinct unnest(claims))) order by q.claim for update
  loop
    if p.done = '{}' then  -- as a rule
      select array_agg(g.id) into mine from unnest(given, claims) as g (id, claim) where g.claim = p.claim;
    else
      select array_agg(g.id) into mine
      from unnest(given, claims) as g (id, claim) left join unnest(p.done) as d (id) on d.id = g.id
      where g.claim = p.claim and d.id is null;
    end if;
    if mine is null then continue; end if;
    told := array(select name from relevo.job_lane l where l.name = any (p.lanes) and l.events <> 'none');
    if p.keeps or cardinality(told) > 0 then
      with got as not materialized (
        select j.*, q.host_name as held_by, q.taken_at, g.friendly as friend, g.result as answer, g.seconds
        from relevo.job_parcel q cross join lateral unnest(q.jobs) as j
        join unnest(given, friendlies, results, p_seconds) as g (id, friendly, result, seconds) on g.id = j.id
        join unnest(mine) as m (id) on m.id = j.id
        where q.host = p_host and q.claim = p.claim
      ), kept as (
        insert into relevo.job_history (
          id, sequence, rank, version, created_at, modified_at, started_at, completed_at, postpone_until, run_seconds,
          attempt, retries, crashes, operation_type, depth, progress, status, priority, retain, auto_delete, hold, lane,
          handler, name, data, host_name, token, owner, created_by, modified_by, result, friendly, message_name,
          extension, regarding_type, regarding_id, correlation, correlation_at, request)
        select id, sequence, rank, version + 2, created_at, at, coalesce(started_at, taken_at), at, postpone_until,
          run_seconds + coalesce(seconds, 0), attempt + 1, retries, crashes, operation_type, depth, 1, 30, priority, retain,
          auto_delete, hold, lane, handler, name, data, held_by, token, owner, created_by, modified_by, answer,
          coalesce(friend, friendly), message_name, extension, regarding_type, regarding_id, correlation, correlation_at, request
        from got where retain or not auto_delete
      )
      select array_agg(id) as ids, array_agg(version + 2) as versions, array_agg(name) as names, array_agg(lane) as lanes,
        array_agg(operation_type) as types, array_agg(attempt + 1) as attempts, array_agg(held_by) as hosts,
        array_agg(error_code) as errors, array_agg(created_at) as created, array_agg(coalesce(started_at, taken_at)) as started
      into e from got where cardinality(told) > 0 and lane = any (told);  -- looked at only if anything is told
      perform relevo.announce_jobs(e.ids, e.versions, array_fill('succeeded'::text, array[cardinality(e.ids)]),
        array_fill(20::smallint, array[cardinality(e.ids)]), array_fill(30::smallint, array[cardinality(e.ids)]),
        e.names, e.lanes, e.types, e.attempts, e.hosts, e.errors, e.created, e.started)
      where e.ids is not null;
    end if;
    perform relevo.shrink_parcel(p_host, p.claim, mine);
    ended := ended || mine;
  end loop;
  return ended;
end $$;

-- As before (0017), and jobs are taken out of parcels first. Who moves them in nobody's name waits for claims under way
-- before, which may have put them into another one.
alter function relevo.move_jobs rename to move_job_rows;
create function relevo.move_jobs(
  ids uuid[], events text[], p_host uuid default null, claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', p_user uuid default null,
  audit boolean default false, keys text[] default '{}')
returns table (id uuid, before smallint, after smallint, version bigint, host uuid) language plpgsql volatile as $$
begin
  perform relevo.unpack_jobs(ids);
  if p_host is null then
    perform from relevo.job j where j.id = any (ids) order by j.id for update;
    perform relevo.unpack_jobs(ids);
  end if;
  return query select * from relevo.move_job_rows(
    ids, events, p_host, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds, p_user, audit, keys);
end $$;

-- As before (0014); a child may be in a parcel.
create or replace function relevo.wake_waiting_jobs(amount integer) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare ready uuid[];
begin
  with late as (
    select w.job from relevo.job_wait w where not w.woken and w.deadline <= relevo.now() order by w.deadline limit amount
  ), parents as (
    select distinct p.job from relevo.job_wait p
    where not p.woken and p.child is not null and not exists (
      select from relevo.job_wait w where w.job = p.job and not w.woken and w.child is not null and relevo.is_live(w.child))
    limit amount
  ), chosen as (select job from late union select job from parents), marked as (
    update relevo.job_wait w set woken = true from chosen c where w.job = c.job returning w.job
  )
  select array_agg(distinct job) into ready from marked;
  if ready is null then return 0; end if;
  perform relevo.wake_jobs(ready);
  return cardinality(ready);
end $$;

-- Stores how far handlers are, and answers what is asked of their jobs.
create function relevo.checkpoint_jobs(p_host uuid, ids uuid[], claims bigint[], progresses real[], saves text[])
returns table (id uuid, status smallint, deleted boolean) language plpgsql volatile as $$
#variable_conflict use_column
begin
  perform relevo.unpack_jobs(ids);
  return query
  update relevo.job j set progress = coalesce(c.progress, j.progress), saved = coalesce(c.saved, j.saved),
    version = j.version + 1, modified_at = relevo.now()
  from unnest(ids, claims, progresses, saves) as c (id, claim, progress, saved)
  where j.id = c.id and j.host = p_host and j.claim = c.claim
  returning j.id, j.status, j.deleted;
end $$;

-- Claims jobs lane by lane: of every handler that the host has, the first; the claim takes what it reads.
-- A claimed row of a series leaves the next one waiting. The order of the answer is that of the claims.
-- Where a host was lost with one of them, no more are claimed than can begin at once (`slots`, by lane): if one of
-- them brings hosts down, few others are with it, and it is soon known. Many plain ones leave as a parcel,
-- unless they are wanted `singly`.
create function relevo.claim_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[], slots integer[],
  singly boolean)
returns setof relevo.job_work language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  places tid[];
  recurs boolean;
  suspected boolean;
  plain boolean;  -- all of them: nothing follows from their success but a record and an event
  own boolean;  -- any of them is the platform's
  keeps boolean;
  taken relevo.job[];
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
  select array_agg(c.place order by c.rank, c.sequence), bool_or(c.recurs), bool_or(c.crashes > 0), bool_and(c.plain and not w.braked), bool_or(c.keeps), bool_or(c.system)
  into places, recurs, suspected, plain, keeps, own
  from wanted w cross join lateral (
    select j.ctid as place, j.rank, j.sequence, j.series is not null as recurs, j.crashes, j.system, j.retain or not j.auto_delete as keeps,
      j.attempt = 0 and j.operation_type in (1, 54) and not j.system and pg_column_size(j.data) <= 2000
        and j.chain is null and j.series is null and j.details is null as plain
    from relevo.job j
    where j.lane = w.lane and j.handler = w.handler and j.status = 0 and not j.chained and not j.capped
      and (not w.braked or j.id = w.probe)
    order by j.rank, j.sequence limit w.amount
    for update skip locked
  ) c;
  if suspected then
    select array_agg(c.place order by c.nth) into places
    from (
      select p.place, j.lane, row_number() over (partition by j.lane order by p.nth) as nth
      from unnest(places) with ordinality as p (place, nth) join relevo.job j on j.ctid = p.place
    ) c join unnest(lanes, slots) as l (lane, slots) on l.lane = c.lane and c.nth <= coalesce(l.slots, c.nth);
  end if;
  if places is null then return; end if;
  if plain and not singly and cardinality(places) >= relevo.parcel_min() and not exists (
    select from relevo.job_lane l where l.name = any (lanes) and (l.told > 1 or l.owner_cap is not null)
  ) then
    with gone as (
      delete from relevo.job j using unnest(places) as p (place) where j.ctid = p.place returning j as job  -- in this order
    )
    select array_agg(g.job) into taken from gone g;
    insert into relevo.job_parcel (host, claim, host_name, taken_at, size, keeps, lanes, ids, jobs)
    select p_host, p_claim, p_name, at, cardinality(taken), keeps, lanes, array(select j.id from unnest(taken) as j), taken;
    return query
    select 'claimed', j.id, null::smallint, p_claim, j.lane, j.handler, j.name, j.data, 1, j.operation_type,
      date_part('epoch', j.created_at),
      case when j.owner is null and j.token is null and j.regarding_id is null and j.regarding_type is null and j.depth = 1
             and j.correlation = j.id
           then null else relevo.job_particulars(j) end
    from unnest(taken) as j;
    return;
  end if;
  return query
  update relevo.job j set
    status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1,
    started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1,
    friendly = case when j.attempt = 0 then j.friendly end  -- what a former run failed with is not of this one
  from unnest(places) as p (place) where j.ctid = p.place  -- in this order
  returning 'claimed', j.id, null::smallint, j.claim, j.lane, j.handler, j.name, j.data, j.attempt, j.operation_type,
    date_part('epoch', j.created_at),
    case when j.owner is null and j.chain is null and j.series is null and j.saved is null and j.details is null and j.token is null
           and j.regarding_id is null and j.regarding_type is null and j.retries = 0 and j.crashes = 0 and j.depth = 1 and j.correlation = j.id
         then null else relevo.job_particulars(j) end;
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
  if own or exists (select from relevo.job_lane l where l.name = any (lanes) and l.events = 'all') then
    perform relevo.announce_claims(p_host, p_claim);
  end if;
end $$;

-- Says in the log that jobs were started, where their lanes say so or they are the platform's.
create function relevo.announce_claims(p_host uuid, p_claim bigint) returns void language plpgsql volatile as $$
begin
  perform set_config('synchronous_commit', 'on', true);
  perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('started'::text), array_agg(0::smallint),
    array_agg(20::smallint), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
    array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
  from relevo.job j join relevo.job_lane l on l.name = j.lane
  where j.host = p_host and j.claim = p_claim and (l.events = 'all' or j.system);
end $$;

-- Ends jobs that succeeded in the name of their host, those from which nothing follows but a record and an event: most
-- jobs, at a third less than by `relevo.move_jobs`. Answers which; the others are left as they are.
create or replace function relevo.end_plain_jobs(
  p_host uuid, ids uuid[], claims bigint[], friendlies text[], results text[], seconds float8[])
returns uuid[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
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
        and not j.system and j.chain is null and j.series is null and j.lane = any (silent) and j.auto_delete and not j.retain
      returning j.id
    )
    select array_agg(id) into ended from gone;
    if cardinality(ended) = cardinality(ids) then return ended; end if;
  end if;
  with given as materialized (
    select g.* from unnest(ids, claims, friendlies, results, seconds) as g (id, claim, friendly, result, seconds)
    order by g.id  -- as everybody locks rows
  ), gone as (
    delete from relevo.job j using given g
    where j.id = g.id and j.host is not distinct from p_host  -- not by the index of hosts, which has all it holds
      and j.claim = g.claim and j.status = 20 and not j.deleted and not j.system
      and j.chain is null and j.series is null and j.lane = any (plain)
    returning j.*, g.friendly as friend, g.result as answer, g.seconds, j.lane = any (told) as tell
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

-- All a host does with jobs, in one round trip and one commit: settle what is finished, let the next through gates,
-- make ready what is due, claim. Without events all were done, and most of those are plain.
create function relevo.work_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[],
  ids uuid[] default '{}', events text[] default '{}', claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', keys text[] default '{}', slots integer[] default '{}',
  singly boolean default false)
returns setof relevo.job_work language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare settled uuid[];
begin
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
          null::integer, null::float8, null::text
        from unnest(ids, claims) as g (id, claim)
        where not (g.id = any (coalesce(settled, '{}')));
    end if;
  else
    -- A claim that a crash forgets is claimed again, and its fence matches no row.
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if cardinality(ids) = 0 and (select sum(r) from unnest(rooms) as r) >= relevo.parcel_min() then
    -- One after the other: to walk past rows that another has just locked costs more than to wait for its commit.
    perform pg_advisory_xact_lock(1380273162, hashtext(l.name)) from (select unnest(lanes) as name order by 1) as l;
  end if;
  if exists (select from relevo.job_gate) then perform relevo.open_noted_job_gates(); end if;
  perform relevo.make_jobs_due(500);
  -- A call that was on its way when its host was found dead claims nothing: it would only count as a crash.
  if cardinality(lanes) > 0 and exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then
    return query
      select * from relevo.claim_jobs(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly);
  end if;
  return query
    select 'asked', j.id, case when j.deleted then -1::smallint else j.status end, j.claim, null::text, null::text, null::text,
      null::text, null::integer, null::integer, null::float8, null::text
    from relevo.job j where j.host = p_host and j.host is not null and (j.status <> 20 or j.deleted);
end $$;

-- As before (0012), a third cheaper: the text of an event is put together here, and parsed once.
create or replace function relevo.announce_jobs(
  ids uuid[], versions bigint[], kinds text[], befores smallint[], afters smallint[], names text[], lanes text[],
  types integer[], attempts integer[], hosts text[], errors integer[], created timestamptz[], started timestamptz[])
returns void language plpgsql volatile as $$
begin
  if ids is null then return; end if;
  perform relevo.append_events(
    array_agg('relevo.job.' || e.kind), array_agg(1::smallint), array_agg('job/' || e.id), array_agg(e.version),
    array_agg('{' || concat_ws(',',  -- which leaves out what is null
      '"id":"' || e.id || '"', '"name":' || to_json(e.name), '"lane":' || to_json(e.lane), '"operationType":' || e.type,
      '"before":' || e.before, '"after":' || e.after, '"attempt":' || e.attempt, '"host":' || to_json(e.host),
      '"errorCode":' || e.error, '"createdOn":' || to_json(e.created), '"startedOn":' || to_json(e.started)) || '}'),
    pg_backend_pid())
  from unnest(ids, versions, kinds, befores, afters, names, lanes, types, attempts, hosts, errors, created, started)
    as e (id, version, kind, before, after, name, lane, type, attempt, host, error, created, started);
end $$;

-- Submits jobs, one row of each array per job (short arrays are filled with nulls). One handler alone is that of all
-- jobs, and so are name, lane and priority then. `options` holds what few jobs have. Chained and capped jobs are
-- noted; nothing is locked.
create or replace function relevo.submit_jobs(
  ids uuid[], handlers text[], datas text[], names text[] default '{}', tokens text[] default '{}',
  starts timestamptz[] default '{}', lanes text[] default '{}', priorities smallint[] default '{}',
  owners uuid[] default '{}', options jsonb[] default '{}')
returns void language plpgsql volatile as $$
declare strange text := (
  select min(x.lane) from unnest(lanes) as x (lane)
  where x.lane is not null and not exists (select from relevo.job_lane l where l.name = x.lane));
  at timestamptz := relevo.now();
  common record;
begin
  if exists (select from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-12-31') then
    raise exception 'the start of a job is in the years 1 to 9999, not %',
        (select min(s.start) from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-12-31')
      using errcode = 'RV011';
  end if;
  if strange is not null then
    raise exception 'there is no lane %', strange
      using errcode = 'RV010', hint = 'Configure it on a host, or name another.';
  end if;
  if cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 and cardinality(handlers) = 1 then
    select p.handler, coalesce(names[1], p.handler) as name, l.name as lane, coalesce(priorities[1], 4::smallint) as priority,
      coalesce(h.operation_type, 54) as type, coalesce(h.auto_delete, false) as auto_delete,
      (extract(epoch from at) * 1000000)::bigint - case when l.priority then coalesce(priorities[1], 4) * 60000000::bigint else 0 end as rank
    into strict common
    from (select handlers[1] as handler) p
    left join relevo.job_handler h on h.name = p.handler
    join relevo.job_lane l on l.name = coalesce(lanes[1], h.lane, 'plugin');
    insert into relevo.job (  -- most jobs are as plain as this, and it costs half as much
      id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
      correlation, correlation_at, extension, message_name)
    select g.id, common.rank, at, at, 0, common.priority, common.type, common.lane, common.handler, common.name, g.data,
      common.auto_delete, g.id, at, common.handler, common.handler
    from unnest(ids, datas) as g (id, data);
  elsif cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 then
    insert into relevo.job (
      id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
      correlation, correlation_at, extension, message_name)
    select g.id, (extract(epoch from at) * 1000000)::bigint - case when l.priority then coalesce(g.priority, 4) * 60000000::bigint else 0 end,
      at, at, 0, coalesce(g.priority, 4), coalesce(h.operation_type, 54), l.name, g.handler, coalesce(g.name, g.handler), g.data,
      coalesce(h.auto_delete, false), g.id, at, g.handler, g.handler
    from unnest(ids, handlers, datas, names, lanes, priorities) with ordinality
      as g (id, handler, data, name, lane, priority, n)
    left join relevo.job_handler h on h.name = g.handler
    join relevo.job_lane l on l.name = coalesce(g.lane, h.lane, 'plugin')
    order by g.n;
  else
    perform relevo.submit_special_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  end if;
  if exists (select from relevo.job_lane l where l.events = 'all')
     or exists (select from unnest(options) as o (given) where (o.given ->> 'system')::boolean) then
    perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('submitted'::text), array_agg(null::smallint),
      array_agg(j.status), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
      array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
    from relevo.job j join relevo.job_lane l on l.name = j.lane
    where j.id = any (ids) and (l.events = 'all' or j.system);
  end if;
end $$;
