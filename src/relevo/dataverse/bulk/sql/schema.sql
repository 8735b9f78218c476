-- Bulk operations, imports, duplicate detection, and the default series.
-- after: jobs

-- Bulk operations and their progress; one row for each job, also for each run of a series.
create table relevo.bulk_operation (
  id            uuid primary key default relevo.uuid7(),
  job           uuid not null unique,
  kind          integer not null,
  name          text not null,
  queries       jsonb not null,
  query_index   integer not null default 0,
  part          uuid,                        -- the child that runs the current query
  success_count bigint not null default 0,
  failure_count bigint not null default 0,
  owner         uuid,
  created_at    timestamptz not null default relevo.now()
);

-- Rows that a bulk operation could not process.
create table relevo.bulk_failure (
  id          uuid primary key default relevo.uuid7(),
  job         uuid not null,
  row_id      text not null,
  query_index integer not null,
  code        integer not null,
  message     text not null,
  at          timestamptz not null default relevo.now()
);
create index bulk_failures on relevo.bulk_failure (job, at);

-- The recipients of a job, recorded before a mail is sent, so that none gets it twice.
create table relevo.bulk_delivery (
  job       uuid not null,
  recipient text collate "C" not null,
  sent      boolean not null default false,
  primary key (job, recipient)
);

-- Imports: the file, and its rows on their way from text to items.
create table relevo.import (
  id         uuid primary key,
  container  text not null,
  options    jsonb not null,
  content    bytea not null,
  step       integer not null default 0,   -- the last finished step: 3 parsed, 4 transformed
  created_at timestamptz not null default relevo.now()
);

create table relevo.import_row (
  import   uuid not null references relevo.import on delete cascade,
  number   bigint not null,
  raw      jsonb,
  item     jsonb,
  error    text,
  written  boolean not null default false,
  replaced boolean not null default false,  -- it replaced an existing item, so there is nothing to undo
  primary key (import, number)
);

-- Rules of duplicate detection, the codes of items, and the pairs found.
create table relevo.duplicate_rule (
  name         text collate "C" primary key,
  container    text not null,
  fields       jsonb not null,
  published_at timestamptz
);

create table relevo.match_code (
  rule text collate "C" not null references relevo.duplicate_rule on delete cascade,
  pk   text collate "C" not null,
  id   text collate "C" not null,
  code text collate "C" not null,
  primary key (rule, pk, id)
);
create index match_codes on relevo.match_code (rule, code);

-- Two long partition keys do not fit into one index entry, so the pairs have no primary key.
create table relevo.duplicate (
  job            uuid not null,
  rule           text collate "C" not null,
  base_pk        text collate "C" not null,
  base_id        text collate "C" not null,
  duplicate_pk   text collate "C" not null,
  duplicate_id   text collate "C" not null
);
alter table relevo.duplicate replica identity full;
create index duplicate_job on relevo.duplicate (job, rule, base_id, duplicate_id);

-- Bulk deletes under their Dataverse names. A bulk delete whose child waits shows the child's state.
create view relevo.bulk_delete as
  select b.id as bulkdeleteoperationid, b.job as asyncoperationid, b.name, b.queries as orderedquerysetxml,
    b.query_index as processingqeindex, b.success_count as successcount, b.failure_count as failurecount,
    j.series is not null as isrecurring, w.postpone_until as nextrun, b.owner as ownerid, b.created_at as createdon,
    s.status / 10 as statecode,
    case when s.status = 10 and s.retries > 0 and s.postpone_until is not null then 11
      when s.status = 10 and s.attempt > 0 then 12 else s.status end as statuscode
  from relevo.bulk_operation b
  left join relevo.jobs j on j.id = b.job
  left join relevo.job w on w.series = j.series and w.attempt = 0 and w.status in (0, 10)
  left join relevo.job p on p.id = b.part and j.status = 20 and p.status = 10 and p.attempt > 0 and not p.waiting_event
  cross join lateral (select case when p.id is null then j.status else p.status end as status,
    case when p.id is null then j.retries else p.retries end as retries,
    case when p.id is null then j.attempt else p.attempt end as attempt,
    case when p.id is null then j.postpone_until else p.postpone_until end as postpone_until) s
  where b.kind = 13;

create view relevo.bulk_delete_failure as
  select f.id as bulkdeletefailureid, b.id as bulkdeleteoperationid, f.job as asyncoperationid, f.row_id as regardingobjectid,
    f.code as errornumber, f.message as errordescription, f.query_index as orderedqueryindex, f.at as createdon
  from relevo.bulk_failure f join relevo.bulk_operation b on b.job = f.job and b.kind = 13;

-- Series that were created once for the installation; a deleted one is not created again.
create table relevo.standing_job (
  name    text collate "C" primary key,
  job     uuid not null,
  made_at timestamptz not null default relevo.now()
);
