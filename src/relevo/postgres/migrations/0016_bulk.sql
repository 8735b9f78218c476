-- description: children of bulk deletes, and what an installation has by itself
-- locks: relevo.bulk_operation for a moment; writers of relevo.job, while an index of few rows is made

-- Children of bulk deletes that are not completed.
create index job_bulk_parts on relevo.job (id) where operation_type = 23;

-- The job that works on the query at hand.
alter table relevo.bulk_operation add column part uuid;

-- Bulk deletes under the names that clients of Dataverse know. One whose child waits shows what that waits for.
create or replace view relevo.bulk_delete as
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

-- What was made once for the installation: who deletes it does not get it again.
create table relevo.standing_job (
  name    text collate "C" primary key,
  job     uuid not null,
  made_at timestamptz not null default relevo.now()
);
