-- description: system jobs: live rows and history, lanes, gates of chains and owners, the one function that moves jobs
-- locks: nothing that exists; all objects are new

-- How jobs of a lane are ordered, capped and announced. Hosts write what they were configured with.
create table relevo.job_lane (
  name      text collate "C" primary key,
  events    text not null default 'ends' check (events in ('none', 'ends', 'all')),
  priority  boolean not null default false,
  owner_cap integer check (owner_cap > 0),
  told      smallint not null generated always as (  -- of which moves something follows: 0 none, 1 ends, 2 all
    case when owner_cap is not null or events = 'all' then 2 when events = 'ends' then 1 else 0 end) stored
);
insert into relevo.job_lane (name) values ('plugin'), ('workflow'), ('bulk'), ('maintenance');

-- Handlers that hosts have had: what a submit by name alone means, and who can run what.
create table relevo.job_handler (
  name           text collate "C" primary key,
  lane           text collate "C" not null references relevo.job_lane (name),
  operation_type integer not null default 54,
  auto_delete    boolean not null default false,
  served_at      timestamptz not null default relevo.now(),
  enabled        boolean not null default true
);

-- The table of `relevo.jobs.states`, so that statements decide what code and documentation say.
create table relevo.job_transition (
  from_status smallint not null,
  event       text collate "C" not null,
  to_status   smallint not null,   -- -1: removed
  primary key (from_status, event)
);
insert into relevo.job_transition (from_status, event, to_status) values
  (0, 'unserved', 31),
  (0, 'brake', 10), (0, 'cancel', 32), (0, 'claim', 20), (0, 'deactivate', 32), (0, 'delete', -1), (0, 'hold', 10),
  (0, 'postpone', 10), (10, 'cancel', 32), (10, 'deactivate', 32), (10, 'delete', -1), (10, 'due', 0), (10, 'postpone', 10),
  (10, 'resume', 0), (10, 'signal', 0), (20, 'await', 10), (20, 'cancel', 22), (20, 'crash_out', 31), (20, 'delete', 20),
  (20, 'done', 30), (20, 'fail', 31), (20, 'lost', 0), (20, 'pause', 21), (20, 'postpone', 21), (20, 'retry', 10),
  (20, 'return', 0), (20, 'suspend', 10), (20, 'yield', 0), (21, 'await', 10), (21, 'cancel', 22), (21, 'delete', 21),
  (21, 'done', 30), (21, 'fail', 31), (21, 'lost', 10), (21, 'pause', 21), (21, 'postpone', 21), (21, 'resume', 20),
  (21, 'retry', 10), (21, 'return', 10), (21, 'suspend', 10), (21, 'yield', 10), (22, 'await', 32), (22, 'cancel', 22),
  (22, 'delete', 22), (22, 'done', 32), (22, 'fail', 31), (22, 'lost', 32), (22, 'retry', 31), (22, 'return', 32),
  (22, 'stop', 32), (22, 'suspend', 31), (22, 'yield', 32), (30, 'delete', -1), (31, 'delete', -1), (32, 'delete', -1);

create sequence relevo.job_sequence;

-- Jobs that are not completed. `status / 10` is the state. A job is claimable when it is ready and no
-- gate holds it: `chained` behind the head of its chain, `capped` behind others of its owner.
create table relevo.job (
  id             uuid primary key,
  sequence       bigint not null default nextval('relevo.job_sequence'),
  rank           bigint not null,
  version        bigint not null default 1,
  created_at     timestamptz not null,
  modified_at    timestamptz not null,
  started_at     timestamptz,
  completed_at   timestamptz,
  postpone_until timestamptz,
  claim          bigint,
  run_seconds    float8 not null default 0,
  attempt        integer not null default 0,
  retries        integer not null default 0,
  crashes        integer not null default 0,
  operation_type integer not null default 54,
  depth          integer not null default 1,
  error_code     integer,
  progress       real,
  status         smallint not null,
  priority       smallint not null default 4 check (priority between 0 and 9),
  chained        boolean not null default false,
  capped         boolean not null default false,
  waiting_event  boolean not null default false,
  retain         boolean not null default false,
  auto_delete    boolean not null default false,
  system         boolean not null default false,
  hold           boolean not null default false,
  deleted        boolean not null default false,
  host           uuid,
  lane           text collate "C" not null,
  handler        text collate "C" not null,
  name           text not null,
  data           text,
  host_name      text,
  chain          text collate "C",
  token          text collate "C",
  owner          uuid,
  created_by     uuid,
  modified_by    uuid,
  saved          text,
  result         text,
  message        text,
  friendly       text,
  message_name   text,
  extension      text collate "C",
  regarding_type text collate "C",
  regarding_id   text collate "C",
  correlation    uuid,
  correlation_at timestamptz,
  request        uuid,
  series         uuid,
  pattern        text,
  anchor         timestamptz,
  zone           text,
  nominal        timestamptz,
  next_at        timestamptz,
  details        jsonb,
  constraint job_status check (status in (0, 10, 20, 21, 22)),
  constraint job_held check ((host is not null) = (status between 20 and 22) and (host is null) = (claim is null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
create index job_claims on relevo.job (lane, handler, rank, sequence) where status = 0 and not chained and not capped;
create index job_due on relevo.job (postpone_until) where status = 10 and postpone_until is not null and not waiting_event;
create index job_hosts on relevo.job (host) where host is not null;
create index job_chains on relevo.job (chain, sequence) where chain is not null;
create unique index job_heads on relevo.job (chain) where chain is not null and not chained;
create index job_owners on relevo.job (lane, owner, rank, sequence) where capped and not chained and status = 0;
create index job_admitted on relevo.job (lane, owner) where not capped and status <> 10 and owner is not null;
-- A series has one row that has not started.
create unique index job_series on relevo.job (series) where series is not null and status in (0, 10) and attempt = 0;
create index job_of_series on relevo.job (series) where series is not null;
create index job_regarding on relevo.job (regarding_id) where regarding_id is not null;

-- Completed jobs: rows are added and removed, never changed.
create table relevo.job_history (like relevo.job including defaults,
  constraint job_history_status check (status in (30, 31, 32)));
alter table relevo.job_history add primary key (id);
create index job_history_pages on relevo.job_history (created_at, sequence);
create index job_history_ends on relevo.job_history using brin (completed_at) with (pages_per_range = 16, autosummarize = on);
create index job_history_failures on relevo.job_history (completed_at) where status <> 30;
create index job_history_series on relevo.job_history (series) where series is not null;
create index job_history_regarding on relevo.job_history (regarding_id) where regarding_id is not null;

-- Both as one, as people see them: a running job that was deleted is gone.
create view relevo.jobs as
  select * from relevo.job where not deleted
  union all
  select * from relevo.job_history;

-- Keys of chains and owners whose next job is to be let through: `c` and the chain, or `o`, lane and owner.
-- Submitters append and lock nothing; whoever claims works it off.
create table relevo.job_gate (
  id  bigint generated always as identity primary key,
  key text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Time-ordered keys (RFC 9562), also on servers that do not have them.
create function relevo.uuid7() returns uuid language sql volatile parallel safe
begin atomic
  select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid;
end;

create function relevo.job_owner_key(lane text, owner uuid) returns text language sql immutable parallel safe
begin atomic
  select 'o' || lane || ' ' || owner;
end;

-- Waits for gates, in one order on every path, so that nobody waits in a circle. Before any job row.
create function relevo.lock_job_gates(keys text[]) returns void language plpgsql volatile as $$
declare number integer;
begin
  perform relevo.stay_awake();
  for number in select distinct hashtext(k) from unnest(keys) as k order by 1 loop
    perform pg_advisory_xact_lock(1380273160, number);
  end loop;
end $$;

-- Lets the next through gates that the caller has locked. It sees what is committed by now, and so is
-- a statement after the one that ended a job: else a job that commits meanwhile is seen by neither.
create function relevo.open_job_gates(keys text[]) returns void language plpgsql volatile
set enable_seqscan = off as $$
declare gate record;
begin
  with opened as (
    update relevo.job j set chained = false
    from (
      select distinct on (k.key) o.id
      from unnest(keys) as k (key)
      cross join lateral (
        select o.id, o.sequence from relevo.job o where o.chain = substr(k.key, 2) order by o.sequence limit 1
      ) o
      where left(k.key, 1) = 'c'
        and not exists (select from relevo.job x where x.chain = substr(k.key, 2) and not x.chained)
    ) head
    where j.id = head.id and j.chained
    returning j.lane, j.owner, j.capped
  )
  insert into relevo.job_gate (key)
  select distinct relevo.job_owner_key(lane, owner) from opened where capped;
  for gate in
    select l.name as lane, o.owner, l.owner_cap as cap, l.owner_cap - (
        select count(*) from relevo.job a
        where a.lane = l.name and a.owner = o.owner and not a.capped and a.status <> 10) as room
    from (select distinct substr(k, 2) as key from unnest(keys) as k where left(k, 1) = 'o') k
    cross join lateral (select split_part(k.key, ' ', 1) as lane, split_part(k.key, ' ', 2)::uuid as owner) o
    join relevo.job_lane l on l.name = o.lane
  loop
    update relevo.job j set capped = false
    where j.id in (
      select w.id from relevo.job w
      where w.lane = gate.lane and w.owner = gate.owner and w.capped and not w.chained and w.status = 0
      order by w.rank, w.sequence limit case when gate.cap is not null then greatest(0, gate.room) end
    );
    if gate.room < 0 then
      -- The cap was lowered: who has not started waits again, the latest first.
      update relevo.job j set capped = true
      where j.id in (
        select w.id from relevo.job w
        where w.lane = gate.lane and w.owner = gate.owner and not w.capped and w.status = 0
        order by w.rank desc, w.sequence desc limit -gate.room for update skip locked
      );
    end if;
  end loop;
end $$;

-- Writes what lanes were configured with. Where a cap changed, the owners with jobs in the lane are
-- noted, and whoever claims applies it, so many owners at a time.
create function relevo.declare_job_lanes(names text[], p_events text[], priorities boolean[], caps integer[])
returns void language plpgsql volatile set enable_seqscan = off as $$
declare changed text[];
begin
  select array_agg(g.name) into changed
  from unnest(names, caps) as g (name, cap) join relevo.job_lane l on l.name = g.name
  where l.owner_cap is distinct from g.cap;
  insert into relevo.job_lane (name, events, priority, owner_cap)
  select * from unnest(names, p_events, priorities, caps)
  on conflict (name) do update set events = excluded.events, priority = excluded.priority, owner_cap = excluded.owner_cap
  where (relevo.job_lane.events, relevo.job_lane.priority, relevo.job_lane.owner_cap)
    is distinct from (excluded.events, excluded.priority, excluded.owner_cap);
  insert into relevo.job_gate (key)
  select distinct relevo.job_owner_key(j.lane, j.owner) from relevo.job j
  where j.lane = any (changed) and j.owner is not null;
end $$;

-- Works off noted gates, those that nobody holds at this moment; the others stay noted.
create function relevo.open_noted_job_gates() returns void language plpgsql volatile as $$
declare
  noted bigint[];
  keys text[];
begin
  with picked as (
    select g.id, g.key from relevo.job_gate g order by g.id limit 500 for update skip locked
  ), free as materialized (
    select key from (select distinct key from picked) k
    where pg_try_advisory_xact_lock(1380273160, hashtext(key))
  )
  select array_agg(p.id), array_agg(distinct p.key) into noted, keys
  from picked p join free f on f.key = p.key;
  if noted is null then return; end if;
  delete from relevo.job_gate where id = any (noted);
  perform relevo.open_job_gates(keys);
end $$;

-- A change of one job, as statements hand it to those that follow from it.
create type relevo.job_move as (
  id uuid, event text, before smallint, after smallint, version bigint, host uuid, lane text, owner uuid, chain text,
  chained boolean, capped boolean, name text, operation_type integer, attempt integer, host_name text, error_code integer,
  created_at timestamptz, started_at timestamptz, series uuid, hold boolean, system boolean, details jsonb);

-- What jobs have become, into the event log. The log's locks come last in every transaction.
create function relevo.announce_jobs(
  ids uuid[], versions bigint[], kinds text[], befores smallint[], afters smallint[], names text[], lanes text[],
  types integer[], attempts integer[], hosts text[], errors integer[], created timestamptz[], started timestamptz[])
returns void language plpgsql volatile as $$
begin
  if ids is null then return; end if;
  perform relevo.append_events(
    array_agg('relevo.job.' || e.kind), array_agg(1::smallint), array_agg('job/' || e.id), array_agg(e.version),
    array_agg(jsonb_strip_nulls(jsonb_build_object(
      'id', e.id, 'name', e.name, 'lane', e.lane, 'operationType', e.type, 'before', e.before, 'after', e.after,
      'attempt', e.attempt, 'host', e.host, 'errorCode', e.error, 'createdOn', e.created, 'startedOn', e.started))::text),
    pg_backend_pid())
  from unnest(ids, versions, kinds, befores, afters, names, lanes, types, attempts, hosts, errors, created, started)
    as e (id, version, kind, before, after, name, lane, type, attempt, host, error, created, started);
end $$;

-- Submits jobs, one row of each array per job (short arrays are filled with nulls). `options` holds what
-- few jobs have. Chained and capped jobs are noted; nothing is locked.
create function relevo.submit_jobs(
  ids uuid[], handlers text[], datas text[], names text[] default '{}', tokens text[] default '{}',
  starts timestamptz[] default '{}', lanes text[] default '{}', priorities smallint[] default '{}',
  owners uuid[] default '{}', options jsonb[] default '{}')
returns void language plpgsql volatile as $$
declare strange text := (
  select min(x.lane) from unnest(lanes) as x (lane)
  where x.lane is not null and not exists (select from relevo.job_lane l where l.name = x.lane));
  at timestamptz := relevo.now();
begin
  if strange is not null then
    raise exception 'there is no lane %', strange
      using errcode = 'RV010', hint = 'Configure it on a host, or name another.';
  end if;
  if cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 then
    insert into relevo.job (  -- most jobs are as plain as this, and it costs half as much
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
  if exists (select from relevo.job_lane l where l.events = 'all') then
    perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('submitted'::text), array_agg(null::smallint),
      array_agg(j.status), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
      array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
    from relevo.job j join relevo.job_lane l on l.name = j.lane and l.events = 'all'
    where j.id = any (ids);
  end if;
end $$;

-- Submits jobs with a token, a start, an owner, or what few jobs have.
create function relevo.submit_special_jobs(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns void language plpgsql volatile as $$
declare now_ timestamptz := relevo.now();
begin
  with given as (
    select g.*, coalesce(g.lane_, h.lane, 'plugin') as lane,
           coalesce((g.o ->> 'operation_type')::integer, h.operation_type, 54) as operation_type,
           coalesce((g.o ->> 'auto_delete')::boolean, h.auto_delete, false) as auto_delete,
           coalesce(g.o ->> 'chain', case when g.token <> '' and g.o -> 'series' is null then 't' || g.token end) as chain,
           now_ as at
    from unnest(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options)
      with ordinality as g (id, handler, data, name, token, start, lane_, priority, owner, o, n)
    left join relevo.job_handler h on h.name = g.handler
  ), made as (
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name,
      data, token, chain, chained, capped, owner, created_by, modified_by, retain, auto_delete, system, hold,
      depth, correlation, correlation_at, request, extension, message_name, regarding_type, regarding_id,
      series, pattern, anchor, zone, nominal, next_at, waiting_event, details)
    select g.id,
      (extract(epoch from g.at) * 1000000)::bigint - case when l.priority then coalesce(g.priority, 4) * 60000000::bigint else 0 end,
      g.at, g.at, case when g.start > g.at or (g.o ->> 'deferred')::boolean then 10 else 0 end, g.start,
      coalesce(g.priority, 4), g.operation_type, g.lane, g.handler, coalesce(g.name, g.handler), g.data,
      nullif(g.token, ''), g.chain, g.chain is not null, l.owner_cap is not null and g.owner is not null,
      g.owner, coalesce((g.o ->> 'created_by')::uuid, g.owner), coalesce((g.o ->> 'created_by')::uuid, g.owner),
      coalesce((g.o ->> 'retain')::boolean, false), g.auto_delete, coalesce((g.o ->> 'system')::boolean, false),
      coalesce((g.o ->> 'hold')::boolean, false), coalesce((g.o ->> 'depth')::integer, 1),
      coalesce((g.o ->> 'correlation')::uuid, g.id), coalesce((g.o ->> 'correlation_at')::timestamptz, g.at),
      (g.o ->> 'request')::uuid, coalesce(g.o ->> 'extension', g.handler), coalesce(g.o ->> 'message_name', g.handler), g.o ->> 'regarding_type',
      g.o ->> 'regarding_id', (g.o ->> 'series')::uuid, g.o ->> 'pattern', (g.o ->> 'anchor')::timestamptz,
      g.o ->> 'zone', (g.o ->> 'nominal')::timestamptz, (g.o ->> 'next_at')::timestamptz,
      coalesce((g.o ->> 'waiting_event')::boolean, false), g.o -> 'details'
    from given g join relevo.job_lane l on l.name = g.lane
    order by g.n
    returning id, lane, chain, capped, owner
  )
  insert into relevo.job_gate (key)
  select distinct 'c' || chain from made where chain is not null
  union all
  select distinct relevo.job_owner_key(lane, owner) from made where capped;
end $$;

-- Submits one job; what any language calls inside its own transaction. No wake-up is sent: hosts look
-- every quarter of a second.
create function relevo.submit_job(
  handler text, data jsonb default '{}', token text default null, start timestamptz default null,
  lane text default null, priority integer default null, name text default null, owner uuid default null,
  options jsonb default null)
returns uuid language plpgsql volatile as $$
declare made uuid := relevo.uuid7();
begin
  if coalesce(handler, '') = '' or length(handler) > 256 or length(name) > 256 or length(token) > 256 then
    raise exception 'a job names its handler; handler, name and token have at most 256 characters'
      using errcode = 'RV011';
  end if;
  perform relevo.submit_jobs(array[made], array[handler], array[coalesce(data, '{}')::text], array[name], array[token],
    array[start], array[lane], array[priority::smallint], array[owner], array[options]);
  return made;
end $$;

-- The one way in which jobs change their status: a row of the arrays per job, with its event. What is
-- written in the name of a host is fenced by incarnation and claim (`p_host`, `claims`); commands come
-- without. Answers a row for each job that moved; who is not answered has a stale fence, is gone, or its
-- event was refused. Gates are locked by the caller, before (`relevo.lock_job_gates`).
create function relevo.move_jobs(
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
begin
  -- A row whose status changed between the look and the lock is judged again.
  for round in 1 .. 4 loop
    with given as materialized (
      select g.* from unnest(ids, events, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds)
        as g (id, event, claim, postpone, delay, error, message, friendly, result, saved, seconds)
      where round = 1 or g.id = any (pending)
      order by g.id  -- as everybody locks rows
    ), gone as (
      delete from relevo.job j using given g, relevo.job_transition t, relevo.job_lane l
      where j.id = g.id and l.name = j.lane and t.from_status = j.status and t.event = g.event
        and (t.to_status >= 30 or t.to_status = -1 or (j.deleted and g.event <> 'delete'))
        and (p_host is null or (j.host = p_host and j.claim = g.claim))
      returning j.*, t.to_status, g.event, g.error, g.message as told, g.friendly as friend, g.result as answer,
                g.saved as state, g.seconds, l.told as lane_told
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
        and g.event not in ('done', 'fail', 'stop')  -- these only end jobs
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
             lane_told > 0 as told
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

-- What follows from moves: the rest of a chain is held, a series ends, gates open, the log is written.
create function relevo.after_job_moves(moved relevo.job_move[], keys text[], audit boolean)
returns void language plpgsql volatile set enable_seqscan = off as $$
declare
  open_keys text[];
  ended uuid[];
begin
  if exists (select from unnest(moved) as m where m.after = 31 and m.hold and m.chain is not null) then
    with held as (
      update relevo.job j set status = 10, postpone_until = null, version = j.version + 1, modified_at = relevo.now(),
        capped = l.owner_cap is not null and j.owner is not null
      from unnest(moved) as m, relevo.job_lane l
      where m.after = 31 and m.hold and j.chain = m.chain and j.status = 0 and j.chained and l.name = j.lane
      returning j.*
    )
    select moved || array_agg(row(id, 'hold', 0, 10, version, host, lane, owner, chain, chained, capped, name, operation_type,
                                  attempt, host_name, error_code, created_at, started_at, series, false, system, null)::relevo.job_move)
    into moved from held;
  end if;
  select array_agg(w.id) into ended
  from unnest(moved) as m join relevo.job w on w.series = m.series and w.attempt = 0 and w.status in (0, 10)
  where m.after = 31 and m.details @> '{"stop_on_failure": true}';
  if ended is not null then
    perform from relevo.move_jobs(ended, array_fill('cancel'::text, array[cardinality(ended)]));
  end if;
  select array_agg(distinct k.key) into open_keys
  from (
    select 'c' || m.chain as key from unnest(moved) as m
    where m.chain is not null and not m.chained and (m.after >= 30 or m.after = -1)
    union all
    select relevo.job_owner_key(m.lane, m.owner) from unnest(moved) as m join relevo.job_lane l on l.name = m.lane
    where l.owner_cap is not null and m.owner is not null and m.after not between 20 and 22
  ) k;
  if open_keys is not null then
    -- Gates that the caller did not lock are left to whoever claims next.
    insert into relevo.job_gate (key) select k from unnest(open_keys) as k where not (k = any (keys));
    perform relevo.open_job_gates(array(select k from unnest(open_keys) as k where k = any (keys)));
  end if;
  perform relevo.announce_jobs(array_agg(e.id), array_agg(e.version), array_agg(e.kind), array_agg(e.before), array_agg(e.after),
    array_agg(e.name), array_agg(e.lane), array_agg(e.operation_type), array_agg(e.attempt), array_agg(e.host_name),
    array_agg(e.error_code), array_agg(e.created_at), array_agg(e.started_at))
  from (
    select m.*, case
        when m.event = 'delete' then 'deleted' when m.event = 'lost' and m.after < 30 then 'lost'
        when m.event = 'retry' and m.after = 10 then 'retrying'
        when m.after = 30 then 'succeeded' when m.after = 31 then 'failed' when m.after = 32 then 'canceled'
        when m.after = 0 then 'resumed' when m.after = 10 then 'suspended' when m.event = 'resume' then 'resumed'
        when m.after = 21 then 'pausing' when m.after = 22 then 'canceling' end as kind
    from unnest(moved) as m join relevo.job_lane l on l.name = m.lane
    where (m.after <> -1 or m.event = 'delete')
      and (l.events = 'all' or audit or m.system or (l.events = 'ends' and (m.after >= 30 or m.event = 'delete')))
  ) e;
  if exists (select from unnest(moved) as m where m.series is not null and (m.after >= 30 or m.after = -1)) then
    perform relevo.announce_series_ends(array(select distinct m.series from unnest(moved) as m
      where m.series is not null and (m.after >= 30 or m.after = -1)));
  end if;
end $$;

-- Says in the log which of some series have come to their end: nothing of them waits or runs.
create function relevo.announce_series_ends(ids uuid[]) returns void language plpgsql volatile as $$
begin
  perform relevo.append_events(array_agg('relevo.series.ended'::text), array_agg(1::smallint), array_agg('series/' || s.id),
    array_agg(1::bigint), array_agg(jsonb_build_object('id', s.id)::text), pg_backend_pid())
  from unnest(ids) as s (id)
  where not exists (select from relevo.job j where j.series = s.id and not j.deleted)
  having count(*) > 0;
end $$;

-- What a host is told of jobs: `stale` (a settlement was refused), `claimed`, or `asked` (something is
-- asked of a job it runs: pause, cancel or delete).
create type relevo.job_work as (
  kind text, id uuid, status smallint, deleted boolean, claim bigint, lane text, handler text, name text, data text, attempt integer,
  retries integer, crashes integer, operation_type integer, chain text, token text, owner uuid, saved text, depth integer,
  correlation uuid, correlation_at timestamptz, created_at timestamptz, series uuid, nominal timestamptz,
  regarding_type text, regarding_id text, message_name text, details jsonb);

-- How often extensions failed, by minute, over all hosts. Lane and handler say where their jobs are found.
create table relevo.job_failure (
  extension text collate "C" not null,
  minute    timestamptz not null,
  lane      text collate "C" not null,
  handler   text collate "C" not null,
  failures  integer not null,
  primary key (extension, minute, lane, handler)
);

-- Extensions that fail too often. After `until` one job, the probe, shows whether it still does.
create table relevo.job_brake (
  extension     text collate "C" primary key,
  lanes         text[] not null,
  handlers      text[] not null,
  since         timestamptz not null,
  until         timestamptz not null,
  probe         uuid,
  probe_attempt integer
);
-- Claims jobs lane by lane: of every handler that the host has, the first; the claim takes what it reads.
-- A claimed row of a series leaves the next one waiting. The order of the answer is that of the claims.
create function relevo.claim_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[])
returns setof relevo.job_work language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  at timestamptz := relevo.now();
begin
  return query
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
  ), picked as materialized (
    select c.ctid from wanted w cross join lateral (
      select j.ctid from relevo.job j
      where j.lane = w.lane and j.handler = w.handler and j.status = 0 and not j.chained and not j.capped
        and (not w.braked or j.id = w.probe)
      order by j.rank, j.sequence limit w.amount
      for update skip locked
    ) c
  ), claimed as (
    update relevo.job j set
      status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1,
      started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1
    where j.ctid = any (array(select picked.ctid from picked))
    returning j.*
  ), following as (
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name, data, token,
      owner, created_by, modified_by, retain, auto_delete, system, hold, depth, correlation, correlation_at, extension,
      message_name, regarding_type, regarding_id, series, pattern, anchor, zone, nominal, details)
    select m.id, 0, at, at, 10, g.next_at, g.priority, g.operation_type, g.lane, g.handler, g.name, g.data, g.token,
      g.owner, g.created_by, g.modified_by, g.retain, g.auto_delete, g.system, g.hold, 1, m.id, at, g.extension,
      g.message_name, g.regarding_type, g.regarding_id, g.series, g.pattern, g.anchor, g.zone, g.next_at,
      g.details || jsonb_build_object('ordinal', g.details -> 'next_ordinal')
    from claimed g cross join lateral (select relevo.uuid7() as id where g.id is not null) as m
    where g.series is not null and g.attempt = 1 and g.next_at is not null
    returning set_config('synchronous_commit', 'on', true) as durable
  )
  select 'claimed', c.id, c.status, c.deleted, c.claim, c.lane, c.handler, c.name, c.data, c.attempt, c.retries, c.crashes,
    c.operation_type, c.chain, c.token, c.owner, c.saved, c.depth, c.correlation, c.correlation_at, c.created_at, c.series,
    c.nominal, c.regarding_type, c.regarding_id, c.message_name, c.details
  from claimed c order by c.rank, c.sequence;
end $$;

-- All a host does with jobs, in one round trip and one commit: settle what is finished, let the next
-- through gates, make ready what is due, claim.
create function relevo.work_jobs(
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
    if cardinality(keys) > 0 then perform relevo.lock_job_gates(keys); end if;
    select array_agg(m.id) into settled
    from relevo.move_jobs(ids, events, p_host, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds,
                          keys => keys) as m;
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
    from relevo.job j where j.host = p_host and (j.status <> 20 or j.deleted);
end $$;

-- Says in the log that jobs were started, where their lanes say so.
create function relevo.announce_claims(got relevo.job_work[]) returns void language plpgsql volatile as $$
begin
  perform set_config('synchronous_commit', 'on', true);
  perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('started'::text), array_agg(0::smallint),
    array_agg(20::smallint), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
    array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
  from unnest(got) as g join relevo.job j on j.id = g.id
  join relevo.job_lane l on l.name = j.lane and l.events = 'all';
end $$;

-- Makes ready whose time has come (S3). Rows of a series that wait for their first start are left out:
-- their next instant is computed first (`relevo.jobs.loops`).
create function relevo.make_jobs_due(amount integer) returns void language plpgsql volatile set enable_seqscan = off as $$
declare moved relevo.job_move[];
begin
  with due as (
    select j.id from relevo.job j
    where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event
      and not (j.series is not null and j.attempt = 0)
    order by j.postpone_until limit amount for update skip locked
  ), turned as (
    update relevo.job j set status = 0, version = j.version + 1, modified_at = relevo.now(),
      capped = l.owner_cap is not null and j.owner is not null
    from due, relevo.job_lane l where j.id = due.id and l.name = j.lane
    returning j.*
  ), noted as (
    insert into relevo.job_gate (key) select distinct relevo.job_owner_key(lane, owner) from turned where capped
  )
  select array_agg(row(id, 'due', 10, 0, version, host, lane, owner, chain, true, false, name, operation_type,
                       attempt, host_name, error_code, created_at, started_at, series, hold, false, null)::relevo.job_move)
  into moved from turned
  where exists (select from relevo.job_lane l where l.name = turned.lane and l.events = 'all');
  if moved is not null then
    perform set_config('synchronous_commit', 'on', true);  -- readers of the log have seen it
    perform relevo.after_job_moves(moved, '{}', false);
  end if;
end $$;

-- Takes jobs from hosts that have ended, some at a time; answers how many.
create function relevo.recover_jobs(amount integer, crashes_max integer) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
  lost uuid[];
  kinds text[];
  keys text[];
begin
  with recursive hosts as (
    (select host from relevo.job where host is not null order by host limit 1)
    union all
    select (select j.host from relevo.job j where j.host > h.host order by j.host limit 1) from hosts h where h.host is not null
  )
  select array_agg(j.id), array_agg(distinct 'c' || j.chain) filter (where j.chain is not null)
  into lost, keys
  from (
    select j.id, j.chain from hosts h join relevo.job j on j.host = h.host
    where not exists (select from relevo.host x where x.incarnation = h.host and x.ended_at is null)
    limit amount
  ) j;
  if lost is null then return 0; end if;
  perform relevo.lock_job_gates(keys);
  -- Judged again: what was locked meanwhile is another's to move.
  select array_agg(j.id), array_agg(case when j.status = 20 and j.crashes + 1 >= crashes_max then 'crash_out' else 'lost' end)
  into lost, kinds
  from (
    select j.id, j.status, j.crashes from relevo.job j
    where j.id = any (lost) and j.host is not null
      and not exists (select from relevo.host x where x.incarnation = j.host and x.ended_at is null)
    order by j.id for update of j skip locked
  ) j;
  if lost is null then return 0; end if;
  perform from relevo.move_jobs(lost, kinds,
    errors => array(select case k when 'crash_out' then -2147220956 end from unnest(kinds) as k),
    friendlies => array(select case k when 'crash_out' then 'host lost' end from unnest(kinds) as k),
    messages => array(select case k when 'crash_out' then 'host lost' end from unnest(kinds) as k),
    keys => coalesce(keys, '{}'));
  return cardinality(lost);
end $$;

-- Fails ready jobs whose handler no host has had for a while; answers how many.
create function relevo.fail_unserved_jobs(patience interval, amount integer, code integer, told text) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
  lost uuid[];
  keys text[];
begin
  -- After an outage nobody had the time to say what it serves.
  if not exists (select from relevo.host h where h.ended_at is null and h.started_at < relevo.now() - patience) then
    return 0;
  end if;
  with recursive kinds as (
    (select lane, handler from relevo.job where status = 0 and not chained and not capped order by lane, handler limit 1)
    union all
    select n.lane, n.handler from kinds k cross join lateral (
      select j.lane, j.handler from relevo.job j
      where j.status = 0 and not j.chained and not j.capped and (j.lane, j.handler) > (k.lane, k.handler)
      order by j.lane, j.handler limit 1) n
  )
  select array_agg(j.id), array_agg(distinct 'c' || j.chain) filter (where j.chain is not null) into lost, keys
  from (
    select j.id, j.chain from kinds k join relevo.job j on j.lane = k.lane and j.handler = k.handler
    where j.status = 0 and not j.chained and not j.capped and j.modified_at < relevo.now() - patience
      and not (j.series is not null and j.attempt = 0)  -- a series goes on when its handler is back
      and not exists (select from relevo.job_handler h where h.name = k.handler and h.lane = k.lane and h.served_at >= relevo.now() - patience)
    limit amount
  ) j;
  if lost is null then return 0; end if;
  perform relevo.lock_job_gates(keys);
  perform from relevo.job j where j.id = any (lost) order by j.id for update;
  perform from relevo.move_jobs(lost, array_fill('unserved'::text, array[cardinality(lost)]),
    errors => array_fill(code, array[cardinality(lost)]), messages => array_fill(told, array[cardinality(lost)]),
    friendlies => array_fill(told, array[cardinality(lost)]), keys => coalesce(keys, '{}'));
  return cardinality(lost);
end $$;
