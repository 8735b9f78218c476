-- System jobs: live rows and history, lanes, gates of chains and owners, parcels, waits.
-- after: events users leases

-- How jobs of a lane are ordered, capped and announced. Hosts write what they were configured with.
create table relevo.job_lane (
  name          text collate "C" primary key,
  events        text not null default 'ends' check (events in ('none', 'ends', 'all')),
  priority      boolean not null default false,
  owner_cap     integer check (owner_cap > 0),
  shared_tokens boolean not null default false,  -- whether jobs of a token are one chain, whoever owns them
  told          smallint not null generated always as (  -- of which moves something follows: 0 none, 1 ends, 2 all
    case when owner_cap is not null or events = 'all' then 2 when events = 'ends' then 1 else 0 end) stored
);
insert into relevo.job_lane (name) values ('default'), ('workflow'), ('bulk'), ('maintenance');

-- Handlers that hosts have had: what a submit by name alone means, and who can run what.
create table relevo.job_handler (
  name           text collate "C" primary key,
  lane           text collate "C" not null references relevo.job_lane (name),
  operation_type integer not null default 54,
  auto_delete    boolean not null default false,
  served_at      timestamptz not null default relevo.now(),
  enabled        boolean not null default true,
  crashes_max    integer check (crashes_max > 0),  -- null: as the settings of hosts say
  priority       smallint check (priority between 0 and 9)  -- of submits that name none; null: 4
);

-- What each host serves, lane by lane; rows of hosts that have ended count for nothing. Explanations read it, claims do not.
create table relevo.job_server (
  host       uuid not null references relevo.host on delete cascade,
  lane       text collate "C" not null,
  handlers   text[] not null,
  slots      integer not null,
  pool       text,
  limit_name text,
  primary key (host, lane)
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
  (10, 'resume', 0), (10, 'signal', 0), (20, 'await', 10), (20, 'cancel', 22), (20, 'crash_out', 31), (20, 'defer', 10), (20, 'delete', 20),
  (20, 'done', 30), (20, 'fail', 31), (20, 'lost', 0), (20, 'pause', 21), (20, 'postpone', 21), (20, 'retry', 10),
  (20, 'return', 0), (20, 'suspend', 10), (20, 'yield', 0), (21, 'await', 10), (21, 'cancel', 22), (21, 'defer', 10), (21, 'delete', 21),
  (21, 'done', 30), (21, 'fail', 31), (21, 'lost', 10), (21, 'pause', 21), (21, 'postpone', 21), (21, 'resume', 20),
  (21, 'retry', 10), (21, 'return', 10), (21, 'suspend', 10), (21, 'yield', 10), (22, 'await', 32), (22, 'cancel', 22), (22, 'defer', 32),
  (22, 'delete', 22), (22, 'done', 32), (22, 'fail', 31), (22, 'lost', 32), (22, 'retry', 31), (22, 'return', 32),
  (22, 'stop', 32), (22, 'suspend', 31), (22, 'yield', 32), (30, 'delete', -1), (31, 'delete', -1), (31, 'rerun', 0),
  (32, 'delete', -1), (32, 'rerun', 0);

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
  alone          boolean not null default false,  -- ready: nothing is to run beside it on its host; in progress: nothing does
  batch          uuid,
  origin         uuid,   -- the job that this one repeats, perhaps with other data
  attempts       jsonb,  -- those that failed or lost their host, the last 20
  constraint job_status check (status in (0, 10, 20, 21, 22)),
  constraint job_held check ((host is not null) = (status between 20 and 22) and (host is null) = (claim is null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
-- With `alone` in the index, claims never read jobs that must run alone, and vice versa.
create index job_claims on relevo.job (handler, alone, rank, sequence) where status = 0 and not chained and not capped;
-- Jobs of a priority above the usual one, which running jobs make room for.
create index job_urgent on relevo.job (handler, priority desc, rank, sequence)
  where status = 0 and not chained and not capped and not alone and priority > 4;
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
-- What is asked of running jobs: pause, cancel, delete. Few rows, where the index by host has all, and those
-- that are gone until it is vacuumed.
create index job_asked on relevo.job (host) where host is not null and (status <> 20 or deleted);
-- The jobs of a batch that have not ended, and how many of them run.
create index job_of_batch on relevo.job (batch, status) where batch is not null;
-- Jobs that a brake holds wait for an event, its end; -2147088105 is 0x80060917.
create index job_braked on relevo.job (extension, rank, sequence)
  where status = 10 and waiting_event and error_code = -2147088105;
-- Children of imports and bulk deletes that are not completed.
create index job_bulk_parts on relevo.job (id) where operation_type in (17, 23);

-- Completed jobs: rows are added and removed, never changed.
create table relevo.job_history (like relevo.job including defaults,
  constraint job_history_status check (status in (30, 31, 32)));

alter table relevo.job_history add primary key (id);
create index job_history_pages on relevo.job_history (created_at, sequence);
create index job_history_ends on relevo.job_history using brin (completed_at) with (pages_per_range = 16, autosummarize = on);
create index job_history_failures on relevo.job_history (completed_at) where status <> 30;
create index job_history_series on relevo.job_history (series, id) where series is not null;
create index job_history_batch on relevo.job_history (batch, completed_at, id) where batch is not null;
create index job_history_regarding on relevo.job_history (regarding_id) where regarding_id is not null;

-- Which job has the key of a unique job. The next submit of the key judges whether that one still counts; the ends of jobs
-- change nothing here.
create table relevo.job_unique (
  key   bytea primary key,
  job   uuid not null,
  since timestamptz not null,
  until timestamptz  -- the end of the longest window that was asked for
) with (fillfactor = 80);

-- Keys of chains and owners whose next job is to be let through: `c` and the chain, or `o`, lane and owner.
-- Submitters append and lock nothing; claims open the gates.
create table relevo.job_gate (
  id  bigint generated always as identity primary key,
  key text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A change of one job, for the follow-ups of a move.
create type relevo.job_move as (
  id uuid, event text, before smallint, after smallint, version bigint, host uuid, lane text, owner uuid, chain text,
  chained boolean, capped boolean, name text, operation_type integer, attempt integer, host_name text, error_code integer,
  created_at timestamptz, started_at timestamptz, series uuid, hold boolean, system boolean, details jsonb,
  batch uuid);

-- How often extensions failed, by minute, over all hosts. The handler says where their jobs are found.
create table relevo.job_failure (
  extension text collate "C" not null,
  minute    timestamptz not null,
  handler   text collate "C" not null,
  failures  integer not null,
  primary key (extension, minute, handler)
);

-- Extensions that fail too often. After `until` one job, the probe, shows whether it still does.
create table relevo.job_brake (
  extension     text collate "C" primary key,
  handlers      text[] not null,
  since         timestamptz not null,
  until         timestamptz not null,
  probe         uuid,
  probe_attempt integer
);

-- A notice to a host: `stale` (a settlement was refused), `claimed`, `parcel` (jobs that differ only in key and data, which
-- are arrays), `asked` (a running job must pause, cancel, or with status -1 was deleted), `braked` (no job of a handler may
-- begin except the one with the id), or `lone` (a job waits for a host that runs nothing else). `particulars` is null for most
-- jobs: each column costs the client time.
create type relevo.job_notice as (
  kind text, id uuid, status smallint, claim bigint, lane text, handler text, name text, data text, attempt integer,
  operation_type integer, created float8, particulars text, ids uuid[], datas text[]);

create type relevo.id_range as range (subtype = uuid);
\ir functions/parcels/id_span.sql

-- A parcel: many jobs in one row, instead of a row and two index entries for each. It belongs to a host, or waits in its
-- lane. A submitted parcel has `datas`, and all other fields in common; one made by a claim has `jobs`. Views show its jobs
-- as rows. Every event of a job except success first turns it into a row (relevo.unpack_jobs), so the rest of the SQL
-- needs no knowledge of parcels. `relevo/jobs/parcels.py` explains them.
-- Lock order: parcels by number, then rows of jobs by id.
create table relevo.job_parcel (
  number         bigint generated always as identity primary key,
  host           uuid,
  claim          bigint,
  host_name      text,
  taken_at       timestamptz,
  size           integer not null,
  keeps          boolean not null,            -- whether the success of any of them leaves a record
  lanes          text[] not null,
  lane           text collate "C",
  handler        text collate "C",
  name           text,
  operation_type integer,
  priority       smallint,
  rank           bigint,
  sequence       bigint,                      -- that of the first
  created_at     timestamptz,
  done           uuid[] not null default '{}',  -- those that were settled or unpacked
  ids            uuid[] not null,
  jobs           relevo.job[],                -- their rows as they were before the claim
  sequences      bigint[],
  datas          text[],
  span           relevo.id_range not null     -- from the least to the greatest key, to find a job
                   generated always as (relevo.id_span(ids)) stored,
  constraint job_parcel_held check ((host is null) = (claim is null) and (host is not null or datas is not null)),
  constraint job_parcel_kind check ((datas is null) = (jobs is not null) and (datas is null) = (lane is null))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_cost_delay = 0);
alter table relevo.job_parcel alter done set storage external, alter ids set storage external,
  alter jobs set storage external, alter datas set storage external, alter sequences set storage external;
create index job_parcel_hosts on relevo.job_parcel (host, claim) where host is not null;
create index job_parcel_claims on relevo.job_parcel (handler, rank, sequence) where host is null;
create index job_parcel_spans on relevo.job_parcel using gist (span);

\ir functions/parcels/jobs_in_parcels.sql
\ir functions/parcels/parcels_spanning.sql

-- Jobs that are not completed, as users see them: without running jobs that were deleted.
create view relevo.live_job as
  select * from relevo.job where not deleted
  union all
  select * from relevo.jobs_in_parcels();

\ir functions/counting/sample_percent.sql

-- What is counted of jobs that are not completed, with how many jobs each row stands for. Counting costs the same
-- however many there are: of a table beyond 2,048 pages (16 MB, about 50,000 jobs) the same share of pages is read
-- each time, and a parcel is one row. Running jobs are exact, and the oldest 1,000 are there for the oldest wait.
create view relevo.counted_job as
  select j.status, j.lane, j.operation_type, j.created_at, j.chained or j.capped as blocked, 100 / s.percent as jobs,
    s.percent < 100 as sampled
  from (select relevo.sample_percent(pg_typeof(null::relevo.job), 2048) as percent offset 0) s
  cross join relevo.job j tablesample system (relevo.sample_percent(pg_typeof(null::relevo.job), 2048)) repeatable (0)
  where j.host is null
  union all
  select j.status, j.lane, j.operation_type, j.created_at, false, 1, false from relevo.job j
  where j.host is not null and not j.deleted
  union all
  (select j.status, j.lane, j.operation_type, j.created_at, false, 0, false from relevo.job j
   where j.host is null order by j.id limit 1000)
  union all
  select (case when p.host is null then 0 else 20 end)::smallint, p.lane, p.operation_type, p.created_at, false,
    p.size - cardinality(p.done), false
  from relevo.job_parcel p where p.datas is not null
  union all
  select 20::smallint, j.lane, j.operation_type, j.created_at, false, 1, false
  from relevo.job_parcel p cross join lateral unnest(p.jobs) as j where p.jobs is not null and j.id <> all (p.done);

-- Every job.
create view relevo.jobs as
  select * from relevo.live_job
  union all
  select * from relevo.job_history;

-- For reports: every job without data and result. It calls no function, because a role that may read the view would
-- need rights to that function.
create view relevo.report_job as
  select id, name, handler, lane, status, priority, attempt, retries, crashes, error_code, message, host_name, owner,
    created_at, started_at, completed_at, postpone_until, run_seconds
  from relevo.job where not deleted
  union all
  select id, name, handler, lane, status, priority, attempt, retries, crashes, error_code, message, host_name, owner,
    created_at, started_at, completed_at, postpone_until, run_seconds
  from relevo.job_history
  union all
  select u.id, p.name, p.handler, p.lane, (case when p.host is null then 0 else 20 end)::smallint, p.priority,
    case when p.host is null then 0 else 1 end, 0, 0, null, null, p.host_name, null, p.created_at, p.taken_at, null, null, 0
  from relevo.job_parcel p cross join lateral unnest(p.ids) as u (id)
  where p.datas is not null and u.id <> all (p.done)
  union all
  select j.id, j.name, j.handler, j.lane, 20::smallint, j.priority, j.attempt + 1, j.retries, j.crashes, j.error_code, j.message,
    p.host_name, j.owner, j.created_at, coalesce(j.started_at, p.taken_at), null, null, j.run_seconds
  from relevo.job_parcel p cross join lateral unnest(p.jobs) as j
  where p.jobs is not null and j.id <> all (p.done);

-- Waits of suspended jobs: for an event, or for the end of other jobs (one row each), until `deadline`.
-- An event that came is kept here until the job has recorded it.
create table relevo.job_wait (
  job      uuid not null,
  step     integer not null,
  part     integer not null default 0,
  event    text collate "C",
  key      text collate "C",
  child    uuid,
  deadline timestamptz,
  since    timestamptz not null default relevo.now(),
  came_at  timestamptz,
  data     text,
  woken    boolean not null default false,
  primary key (job, step, part)
);
create index job_wait_events on relevo.job_wait (event, key) where event is not null and came_at is null;
create index job_wait_deadlines on relevo.job_wait (deadline) where not woken and deadline is not null;
create index job_wait_children on relevo.job_wait (job) where not woken and child is not null;

-- Events that no job waited for when they came.
create table relevo.job_event (
  id    bigint generated always as identity primary key,
  event text collate "C" not null,
  key   text collate "C" not null,
  at    timestamptz not null default relevo.now(),
  data  text
);
create index job_events on relevo.job_event (event, key, id);
