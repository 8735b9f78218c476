-- name: begin_operation
-- What an operation needs before its first stage: the time, its disabled steps, the status of the job that makes it,
-- and whether its user is disabled.
select relevo.now() as now,
  array(select s.id from relevo.pipeline_step s where s.id = any ($1::uuid[]) and not s.enabled) as disabled,
  coalesce((select j.status from relevo.job j where j.id = $2 and j.host = $3 and j.claim = $4 and not j.deleted),
    (select 20 from relevo.job_parcel p
     where p.host = $3 and p.claim = $4 and $2 = any (p.ids) and not ($2 = any (p.done)) limit 1)) as status,
  exists (select from relevo.system_user u where u.id = $5 and u.disabled) as kept_out;

-- name: read_record
-- A record.
select i.body from relevo.item i
where i.container_id = $1 and i.pk = $2 and i.id = $3 and (i.expires_at is null or i.expires_at > relevo.now());

-- name: lock_record
-- A record, locked until the end of the transaction.
select i.body from relevo.item i
where i.container_id = $1 and i.pk = $2 and i.id = $3 and (i.expires_at is null or i.expires_at > relevo.now())
for update;

-- name: put_record
-- Writes a record in the transaction of its operation.
select relevo.put_item($1, $2::jsonb, $3, $4);

-- name: associate
-- Relates records to a record; existing relations stay.
insert into relevo.pipeline_association (relationship, table_name, record_id, other_table, other_id)
select $1, $2, $3, o.table_name, o.id from unnest($4::text[], $5::text[]) as o (table_name, id)
on conflict do nothing;

-- name: disassociate
-- Removes the relations of records to a record.
delete from relevo.pipeline_association a using unnest($4::text[], $5::text[]) as o (table_name, id)
where a.relationship = $1 and a.table_name = $2 and a.record_id = $3 and a.other_table = o.table_name and a.other_id = o.id;

-- name: forget_associations
-- Removes all relations of a deleted record.
delete from relevo.pipeline_association
where (table_name = $1 and record_id = $2) or (other_table = $1 and other_id = $2);

-- name: related
-- The records related to a record.
select other_table, other_id from relevo.pipeline_association
where table_name = $1 and record_id = $2 and relationship = $3 order by other_table, other_id;

-- name: declare_steps
-- Records steps; `enabled` is set only for new ones.
insert into relevo.pipeline_step (id, name, message, table_name, stage, mode, rank, position, filtering, images, configuration,
  secure, run_as, auto_delete, serialize, enabled)
select s.id, s.name, s.message, s.table_name, s.stage, s.mode, s.rank, s.position,
  array(select jsonb_array_elements_text(s.filtering)), s.images, s.configuration, s.secure, s.run_as, s.auto_delete, s.serialize, s.enabled
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::smallint[], $7::integer[], $8::integer[],
  $9::text[]::jsonb[], $10::text[]::jsonb[], $11::text[], $12::bytea[], $13::uuid[], $14::boolean[], $15::text[], $16::boolean[])
  as s (id, name, message, table_name, stage, mode, rank, position, filtering, images, configuration, secure, run_as, auto_delete,
        serialize, enabled)
order by s.id
on conflict (id) do update set message = excluded.message, table_name = excluded.table_name, stage = excluded.stage,
  mode = excluded.mode, rank = excluded.rank, position = excluded.position, filtering = excluded.filtering,
  images = excluded.images, configuration = excluded.configuration, secure = excluded.secure, run_as = excluded.run_as,
  auto_delete = excluded.auto_delete, serialize = excluded.serialize, modified_at = relevo.now();

-- name: switch_step
-- Enables or disables a step.
update relevo.pipeline_step set enabled = $2, switched_at = relevo.now(), modified_at = relevo.now() where id = $1
returning id;

-- name: list_steps
-- All steps, without their secrets.
select id, name, message, table_name, stage, mode, rank, position, filtering, images, configuration, run_as, auto_delete, serialize,
  enabled, secure is not null as has_secure, created_at, modified_at
from relevo.pipeline_step order by name;

-- name: lately_disabled
-- Recently disabled steps, for which an earlier operation may still submit a job.
select id from relevo.pipeline_step where not enabled and switched_at > relevo.now() - $1::interval;
