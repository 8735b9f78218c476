-- name: items_last
-- The last item of a container that meets the conditions, which replace (true).
select i.pk, i.id from relevo.item i
where i.container_id = $1 and (i.expires_at is null or i.expires_at > relevo.now()) and (true)
order by i.pk desc, i.id desc limit 1;

-- name: items_count
-- The number of items of a container that meet the conditions, which replace (true).
select count(*) from relevo.item i
where i.container_id = $1 and (i.expires_at is null or i.expires_at > relevo.now()) and (true);

-- name: items_after
-- Items after a key, up to another, in key order; the conditions replace (true).
select i.pk, i.id, i.body from relevo.item i
where i.container_id = $1 and (i.expires_at is null or i.expires_at > relevo.now()) and (true)
  and (i.pk, i.id) > ($2, $3) and (i.pk, i.id) <= ($4, $5)
order by i.pk, i.id limit $6;

-- name: jobs_last
-- The last job that meets the conditions, which replace (true), except one job, the next run of its series, and children of running parents.
select j.id from relevo.jobs j
where j.id <> $1 and (j.status >= 30 or $2::uuid is null or j.series is distinct from $2) and (true)
  and not (j.operation_type in (17, 23) and exists (select from relevo.job p where p.id = (j.details ->> 'parent')::uuid))
order by j.id desc limit 1;

-- name: jobs_count
-- The number of jobs that meet the conditions, which replace (true), except one job, the next run of its series, and children of running parents.
select count(*) from relevo.jobs j
where j.id <> $1 and (j.status >= 30 or $2::uuid is null or j.series is distinct from $2) and (true)
  and not (j.operation_type in (17, 23) and exists (select from relevo.job p where p.id = (j.details ->> 'parent')::uuid));

-- name: jobs_after
-- Jobs after a key, up to another, that meet the conditions, which replace (true), except one job, the next run of its series, and children of running parents.
select j.id, j.status, j.system, j.operation_type from relevo.jobs j
where j.id <> $1 and (j.status >= 30 or $2::uuid is null or j.series is distinct from $2) and (true)
  and not (j.operation_type in (17, 23) and exists (select from relevo.job p where p.id = (j.details ->> 'parent')::uuid))
  and j.id > $3 and j.id <= $4 order by j.id limit $5;

-- name: import_rows_bounds
-- The last row and the number of rows of a range of an import.
select max(r.number) as number, count(*) as total from relevo.import_row r
where r.import = $1 and r.number between $2 and $3 and r.error is null and (r.written or not $4);

-- name: import_rows_after
-- Rows of an import after a number, up to another: all without an error, or only those that created items.
select r.number, r.raw, r.item from relevo.import_row r
where r.import = $1 and r.error is null and (r.written or not $2) and r.number > $3 and r.number <= $4
order by r.number limit $5;

-- name: owner_facts
-- The business unit, time zone and teams of a job's owner, to which conditions refer.
select u.unit, u.zone, array(select m.team from relevo.team_member m where m.member = u.id) as teams
from relevo.system_user u where u.id = $1;

-- name: kept_out
-- Whether the owner of a job is disabled.
select u.disabled from relevo.system_user u where u.id = $1;

-- name: begin
-- Records the bulk operation of a job, once.
insert into relevo.bulk_operation (job, kind, name, queries, owner) values ($1, $2, $3, $4::text::jsonb, $5)
on conflict (job) do nothing;

-- name: begin_standing
-- Records the default series; returns nothing if it was ever recorded before.
insert into relevo.standing_job (name, job) values ($1, $2) on conflict (name) do nothing returning name;

-- name: advance
-- Adds the counts of a chunk to a job and its parent.
update relevo.bulk_operation set query_index = $2, success_count = success_count + $3, failure_count = failure_count + $4
where job = any ($1::uuid[]);

-- name: begin_part
-- Records the child that runs a query of a bulk delete.
update relevo.bulk_operation set part = $2, query_index = $3 where job = $1;

-- name: end_part
-- Records that the current query is done, even if the record of its job is removed before the parent reads it.
update relevo.bulk_operation set part = null where job = $1 and part = $2;

-- name: read_part
-- The state or end of a child, whether it waits for its parent or is paused, and the counts of its parent so far.
select coalesce(j.status, h.status, case when b.part is null then 30 end) as status, j.progress, h.error_code,
  coalesce(j.waiting_event, false) as held,
  coalesce(j.status = 10 and not j.waiting_event and (j.postpone_until is null or j.retries = 0), false) as paused,
  h.friendly, b.success_count as success, b.failure_count as failure
from relevo.bulk_operation b
left join relevo.job j on j.id = $2 and not j.deleted
left join relevo.job_history h on h.id = $2
where b.job = $1;

-- name: release
-- Resumes a child or a parent that waits for the other.
select relevo.wake_jobs(array[$1::uuid]);

-- name: orphans
-- Children that are not completed although their parent is.
select j.id from relevo.job j
where j.operation_type in (17, 23) and not j.deleted and j.status <> 22 and j.details ? 'parent'
  and not exists (select from relevo.job p where p.id = (j.details ->> 'parent')::uuid and not p.deleted)
limit $1;

-- name: parent
-- The status of a parent, and whether it waits for its child; no row if it has ended.
select j.status, j.waiting_event as waits from relevo.job j where j.id = $1 and not j.deleted;

-- name: record_failures
-- Records failed rows.
insert into relevo.bulk_failure (job, row_id, query_index, code, message)
select $1, f.row_id, $2, f.code, f.message from unnest($3::text[], $4::integer[], $5::text[]) as f (row_id, code, message);

-- name: counts
-- The counts of processed rows of bulk jobs.
select job, success_count, failure_count from relevo.bulk_operation where job = any ($1::uuid[]);

-- name: failures
-- Failed rows of a bulk operation, oldest first, after the given one.
select f.id, f.row_id, f.query_index, f.code, f.message, f.at from relevo.bulk_failure f
where f.job = $1 and ($3::timestamptz is null or (f.at, f.id) > ($3, $4::uuid)) order by f.at, f.id limit $2;

-- name: put_item
-- Writes or removes an item in the transaction of a chunk.
select relevo.put_item($1, $2::text::jsonb, $3);

-- name: delete_completed
-- Deletes records of completed jobs.
delete from relevo.job_history where id = any ($1::uuid[]) returning id;

-- name: gates
-- The gates of jobs that are not completed.
select distinct 'c' || j.chain as key from relevo.job j where j.id = any ($1::uuid[]) and j.chain is not null
union
select relevo.job_owner_key(j.lane, j.owner) from relevo.job j join relevo.job_lane l on l.name = j.lane
where j.id = any ($1::uuid[]) and l.owner_cap is not null and j.owner is not null;

-- name: lock_gates
-- Locks gates, before any job is locked.
select relevo.lock_job_gates($1::text[]);

-- name: delete_live
-- Deletes jobs that are not completed; handlers of running ones are asked to stop.
select id from relevo.move_jobs($1::uuid[], array_fill('delete'::text, array[cardinality($1::uuid[])]), audit => true,
  keys => $2::text[]);

-- name: begin_delivery
-- Records a recipient of a job; returns a row only the first time.
insert into relevo.bulk_delivery (job, recipient, sent) values ($1, $2, $3) on conflict do nothing returning 1;

-- name: end_delivery
-- Records that a mail was sent to a recipient.
update relevo.bulk_delivery set sent = true where job = $1 and recipient = $2;

-- name: delivery
-- Whether a mail is known to have been sent to a recipient.
select sent from relevo.bulk_delivery where job = $1 and recipient = $2;

-- name: begin_import
-- Stores the file and the options of an import.
insert into relevo.import (id, container, options, content) values ($1, $2, $3::text::jsonb, $4);

-- name: read_import
-- An import, without its file.
select container, options from relevo.import where id = $1;

-- name: import_step
-- The last finished step of an import, and the record of a step's job.
select i.step, h.name, h.status, h.error_code, h.friendly
from relevo.import i left join relevo.job_history h on h.id = $2 where i.id = $1;

-- name: end_import_step
-- Records that a step of an import is finished.
update relevo.import set step = $2 where id = $1;

-- name: import_content
-- The file of an import.
select content from relevo.import where id = $1;

-- name: add_import_rows
-- Stores parsed rows; existing rows stay.
insert into relevo.import_row (import, number, raw, error)
select $1, r.number, r.raw::jsonb, r.error from unnest($2::bigint[], $3::text[], $4::text[]) as r (number, raw, error)
on conflict do nothing;

-- name: set_import_items
-- Stores the items, or the errors, of transformed rows.
update relevo.import_row r set item = g.item::jsonb, error = g.error
from unnest($2::bigint[], $3::text[], $4::text[]) as g (number, item, error)
where r.import = $1 and r.number = g.number;

-- name: mark_import_row
-- Records whether a row created an item that still exists, or replaced one.
update relevo.import_row set written = $3, replaced = $4 where import = $1 and number = $2;

-- name: replaced_rows
-- The number of rows of imports that replaced items.
select count(*) from relevo.import_row where import = any ($1::uuid[]) and replaced;

-- name: fail_import_row
-- Records why a row did not become an item.
update relevo.import_row set error = $3 where import = $1 and number = any ($2::bigint[]);

-- name: import_errors
-- Rows of an import that did not become items.
select number, error from relevo.import_row where import = $1 and error is not null order by number limit $2;

-- name: find_by_field
-- The ids of at most two items of a container whose field has a value.
select i.id from relevo.item i join relevo.container c on c.id = i.container_id
where c.name = $1 and i.body::jsonb #> $2::text[] = $3::text::jsonb
  and (i.expires_at is null or i.expires_at > relevo.now()) limit 2;

-- name: save_rule
-- Stores a rule of duplicate detection.
insert into relevo.duplicate_rule (name, container, fields) values ($1, $2, $3::text::jsonb)
on conflict (name) do update set container = excluded.container, fields = excluded.fields, published_at = null;

-- name: read_rule
-- A rule of duplicate detection.
select container, fields, published_at from relevo.duplicate_rule where name = $1;

-- name: publish_rule
-- Records that all items have their codes.
update relevo.duplicate_rule set published_at = relevo.now() where name = $1;

-- name: forget_codes
-- Deletes the codes of a rule.
delete from relevo.match_code where rule = $1;

-- name: save_codes
-- Stores the codes of items.
insert into relevo.match_code (rule, pk, id, code)
select $1, m.pk, m.id, m.code from unnest($2::text[], $3::text[], $4::text[]) as m (pk, id, code)
on conflict (rule, pk, id) do update set code = excluded.code;

-- name: drop_codes
-- Deletes the codes of items that no longer have one.
delete from relevo.match_code m using unnest($2::text[], $3::text[]) as g (pk, id)
where m.rule = $1 and m.pk = g.pk and m.id = g.id;

-- name: record_duplicates
-- Records pairs of existing items with equal codes, each pair once.
insert into relevo.duplicate (job, rule, base_pk, base_id, duplicate_pk, duplicate_id)
select $1, $2, b.pk, b.id, m.pk, m.id
from unnest($3::text[], $4::text[], $5::text[]) as b (pk, id, code)
join relevo.match_code m on m.rule = $2 and m.code = b.code and (m.pk, m.id) <> (b.pk, b.id)
join relevo.duplicate_rule r on r.name = m.rule
join relevo.container c on c.name = r.container
join relevo.item i on i.container_id = c.id and i.pk = m.pk and i.id = m.id
  and (i.expires_at is null or i.expires_at > relevo.now())
where not exists (
  select from relevo.duplicate d
  where d.job = $1 and d.rule = $2 and d.base_id = b.id and d.duplicate_id = m.id
    and d.base_pk = b.pk and d.duplicate_pk = m.pk);

-- name: duplicates
-- The pairs that a detection found.
select base_id, duplicate_id from relevo.duplicate where job = $1 order by base_pk, base_id, duplicate_pk, duplicate_id limit $2;

-- name: forget
-- Deletes the bulk records of jobs that no longer exist, and old imports.
with old as (
  select b.job from relevo.bulk_operation b
  where b.created_at < relevo.now() - interval '1 day' and not exists (select from relevo.jobs j where j.id = b.job)
  order by b.created_at limit $1
), failures as (
  delete from relevo.bulk_failure f using old where f.job = old.job
), deliveries as (
  delete from relevo.bulk_delivery d using old where d.job = old.job
), duplicates as (
  delete from relevo.duplicate d using old where d.job = old.job
), imports as (
  delete from relevo.import i where i.created_at < relevo.now() - $2::interval
)
delete from relevo.bulk_operation b using old where b.job = old.job returning b.job;
