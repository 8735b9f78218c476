-- Batches of jobs: many under one id, with counts, and a job that runs when all have ended.
-- after: jobs

-- The counts lack what `job_batch_delta` holds; a reader adds it. How many members wait and run is counted in `job` itself.
create table relevo.job_batch (
  id          uuid primary key,
  name        text,
  version     bigint not null default 1,
  owner       uuid,
  created_at  timestamptz not null,
  closed_at   timestamptz,  -- from then on it takes no more jobs
  canceled_at timestamptz,
  ended_at    timestamptz,  -- closed, and all its jobs had ended; a retry of one opens the end again
  canceling   boolean not null default false,  -- the leader cancels its jobs
  total       bigint not null default 0,
  succeeded   bigint not null default 0,
  failed      bigint not null default 0,
  canceled    bigint not null default 0,
  handler     text collate "C",  -- of the job that runs when all have ended
  data        text,
  condition   text not null default 'ended' check (condition in ('ended', 'succeeded')),
  callback    uuid  -- that job, once it is submitted
) with (fillfactor = 80);
create index job_batch_pages on relevo.job_batch (created_at, id);
create index job_batch_ends on relevo.job_batch (ended_at) where ended_at is not null;
create index job_batch_canceling on relevo.job_batch (id) where canceling;

-- Changes of the counts. Submits and ends append and lock nothing; the leader adds them up (relevo.fold_batches).
create table relevo.job_batch_delta (
  id        bigint generated always as identity primary key,
  batch     uuid not null,
  added     integer not null default 0,
  succeeded integer not null default 0,
  failed    integer not null default 0,
  canceled  integer not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index job_batch_deltas on relevo.job_batch_delta (batch);
