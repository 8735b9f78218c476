-- The job router: policies and queues, workers and what they hold, jobs, offers.
-- after: events

-- Policies of three kinds and queues: few, read often, written by people. The document is what callers
-- sent, merged, in the words of the wire; secrets in it are sealed.
create table relevo.router_resource (
  kind        text collate "C" not null check (kind in ('classificationPolicies', 'distributionPolicies', 'exceptionPolicies', 'queues')),
  id          text collate "C" not null,
  number      bigint generated always as identity,  -- order of creation, for pages
  version     bigint not null default 1,
  created_at  timestamptz not null default relevo.now(),
  modified_at timestamptz not null default relevo.now(),
  body        jsonb not null,
  primary key (kind, id)
);
create unique index router_resource_pages on relevo.router_resource (kind, number);

-- A queue's round-robin pointer: the worker who got the last offer.
create table relevo.router_pointer (
  queue_id  text collate "C" primary key,
  worker_id text collate "C" not null
);

-- What a worker is: the document.
create table relevo.router_worker (
  id            text collate "C" primary key,
  number        bigint generated always as identity,
  version       bigint not null,            -- of the document
  created_at    timestamptz not null,
  modified_at   timestamptz not null,
  available     boolean not null,
  registration  bigint not null,            -- how often it has registered: ends the memory of declines
  registered_at timestamptz,
  seen_at       timestamptz not null,       -- of the last call about it, to the minute
  capacity      integer not null,
  max_offers    integer,
  queues        text[] collate "C" not null,
  channels      jsonb not null,             -- array, as on the wire
  labels        jsonb not null,             -- without Id
  tags          jsonb not null
);
create unique index router_worker_pages on relevo.router_worker (number);
create index router_worker_queues on relevo.router_worker using gin (queues);
create index router_worker_idle on relevo.router_worker (seen_at) where available;

-- What a worker does: narrow, changed by every offer. Its lock is the lock of the worker.
create table relevo.router_load (
  worker_id  text collate "C" primary key,
  activity   bigint not null default 0,     -- changes with offers and assignments: half of the etag
  events     bigint not null default 0,     -- how many events the worker has had
  used       bigint not null default 0,     -- capacity of open offers and of assignments not yet closed
  offers     integer not null default 0,    -- open ones
  holding    integer not null default 0,    -- assignments not yet closed
  idle_since timestamptz not null,
  acted_at   timestamptz not null,          -- when any of this changed
  by_channel jsonb not null default '{}'    -- jobs per channel, offers included
) with (fillfactor = 60);

create sequence relevo.router_arrival;

create table relevo.router_job (
  id                text collate "C" primary key,
  number            bigint generated always as identity,
  version           bigint not null,        -- of the document
  activity          bigint not null default 0,
  events            bigint not null default 0,
  created_at        timestamptz not null,
  modified_at       timestamptz not null,
  status            text collate "C" not null,
  channel_id        text collate "C" not null,
  channel_reference text,
  queue_id          text collate "C",
  policy_id         text collate "C",
  priority          smallint not null,
  disposition       text,
  mode              text collate "C" not null,  -- matching mode
  schedule_at       timestamptz,
  scheduled_at      timestamptz,
  enqueued_at       timestamptz,
  arrival           bigint,                 -- order among those that came at one instant
  expedite          boolean not null default false,
  round             bigint not null default 0,  -- changes of queue and classifications: ends the memory of declines
  unassigned        smallint not null default 0,
  fired             text[] not null default '{}',  -- exception rules that have fired in this queue
  entered           boolean not null default false,  -- whether the rules for entering its queue were looked at
  due_at            timestamptz,            -- when somebody must look at it, whatever else happens
  close_at          timestamptz,
  closing           jsonb,                  -- what a later close was told
  ended_at          timestamptz,
  requested         jsonb not null default '[]',
  attached          jsonb not null default '[]',
  labels            jsonb not null default '{}',
  tags              jsonb not null default '{}',
  notes             jsonb not null default '[]'
) with (fillfactor = 80);
create unique index router_job_pages on relevo.router_job (number);
create index router_job_waiting on relevo.router_job (queue_id, expedite desc, priority desc, enqueued_at, arrival, id)
  where status = 'queued';
create index router_job_due on relevo.router_job (due_at) where due_at is not null;
create index router_job_unfinished on relevo.router_job (number) where ended_at is null;
create index router_job_in_queue on relevo.router_job (queue_id) where ended_at is null;
create index router_job_by_policy on relevo.router_job (policy_id) where ended_at is null and policy_id is not null;
create index router_job_ended on relevo.router_job (ended_at) where ended_at is not null;

-- An offer, and what becomes of it: open, then declined, expired, revoked, or assigned; and that again
-- completed, closed, unassigned or cancelled. Changed only under the locks of its worker and its job.
create table relevo.router_offer (
  id            uuid primary key,
  job_id        text collate "C" not null,
  worker_id     text collate "C" not null,
  queue_id      text collate "C" not null,
  channel_id    text collate "C" not null,
  cost          integer not null,
  state         text collate "C" not null,
  offered_at    timestamptz not null,
  expires_at    timestamptz,
  job_round     bigint not null,
  registration  bigint not null,
  retry_at      timestamptz,
  reason        text,
  assignment_id uuid,
  assigned_at   timestamptz,
  completed_at  timestamptz,
  ended_at      timestamptz,
  score         double precision            -- what the worker was rated, where the queue takes the best
) with (fillfactor = 80);
create index router_offer_of_job on relevo.router_offer (job_id);
create index router_offer_held on relevo.router_offer (worker_id) where ended_at is null;
create index router_offer_expiring on relevo.router_offer (expires_at) where state = 'open';
create index router_offer_ended on relevo.router_offer (ended_at)
  where state in ('declined', 'expired', 'revoked');
create index router_offer_departures on relevo.router_offer (queue_id, assigned_at) where assigned_at is not null;

-- Channels that were given a name; a list for people, and for the strict mode that refuses others.
create table relevo.router_channel (
  id   text collate "C" primary key,
  name text not null
);

-- Counts changes of policies and queues, so that hosts know when what they remember of them is stale.
create table relevo.router_revision (
  one      boolean primary key default true check (one),
  revision bigint not null default 0
);
insert into relevo.router_revision default values;

-- For reports: router jobs without their labels, tags and notes, and what became of offers.
create view relevo.report_router_job as
  select id, status, channel_id, queue_id, policy_id, priority, disposition, created_at, scheduled_at, enqueued_at, ended_at
  from relevo.router_job;
create view relevo.report_router_offer as
  select id, job_id, worker_id, queue_id, channel_id, state, offered_at, expires_at, assigned_at, completed_at, ended_at
  from relevo.router_offer;
