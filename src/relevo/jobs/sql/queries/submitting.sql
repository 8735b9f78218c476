-- name: submit
-- Submits jobs, one element of each array per job; see the function.
select relevo.submit_jobs($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
  $7::text[], $8::smallint[], $9::uuid[], $10::text[]::jsonb[]);

-- name: submit_plain
-- The same for plain jobs, which most are; every further argument costs time.
select relevo.submit_jobs($1::uuid[], $2::text[], $3::text[]);

-- name: submit_rows
-- The same without the function, for rows of one handler that differ only in key and data: the usual single submit. It stores
-- and returns none if their lane writes an event of each submit, or if there is no such lane.
insert into relevo.job (
  id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
  correlation, correlation_at, extension, message_name)
select g.id, p.rank, p.at, p.at, 0, p.priority, p.operation_type, p.lane, $1, p.name, g.data, p.auto_delete, g.id, p.at, $1, $1
from (
  select t.at, w.* from (select relevo.now() as at offset 0) t cross join lateral relevo.job_terms(t.at, $1, $2, $3, $4::smallint) w
  where w.events <> 'all' offset 0
) p cross join unnest($5::uuid[], $6::text[]) as g (id, data)
returning true;

-- name: submit_unique
-- The same for jobs of which some are unique; returns those that exist already.
select relevo.submit_unique_jobs($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
  $7::text[], $8::smallint[], $9::uuid[], $10::text[]::jsonb[]);

-- name: wait_for_keys
-- How long this transaction waits for others that submit jobs of the same keys.
select pg_catalog.set_config('lock_timeout', $1, true);

-- name: forget_unique_keys
-- Removes keys of unique jobs that count no more, from a key on; returns how many, and the next key.
with looked as materialized (
  select u.key, u.job, u.until from relevo.job_unique u where $1::bytea is null or u.key > $1 order by u.key limit $2
), gone as (
  delete from relevo.job_unique d using looked l
  where d.key = l.key and d.job = l.job and coalesce(l.until < relevo.now(), true) and not relevo.is_live(l.job)
  returning 1
)
select (select count(*) from gone) as removed, key from looked order by key desc limit 1;

-- name: served_lane
-- The lane in which hosts have recently served a handler.
select lane from relevo.job_handler where name = $1 and served_at > relevo.now() - $2::interval;

-- name: lanes
-- All lanes.
select name, events, priority, owner_cap from relevo.job_lane order by name;

-- name: may_read
-- Whether the role of this session may read: one that may only submit must not be asked for more.
select pg_catalog.has_table_privilege('relevo.job_lane'::regclass, 'select');
