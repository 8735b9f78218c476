-- name: chain_heads
-- The jobs that others of their chain wait for: the open one, or the oldest if none is open.
select * from (
  select j.id, coalesce(
    (select h.id from relevo.job h where h.chain = j.chain and not h.chained),
    (select h.id from relevo.job h where h.chain = j.chain order by h.sequence limit 1)) as head
  from relevo.job j where j.id = any ($1::uuid[]) and j.chained
) b where b.head <> b.id;

-- name: chain_of
-- The chain that a live job waits in, null if it is in none; no row if there is no such job.
select chain from relevo.jobs_by_id(array[$1::uuid]) where status < 30;

-- name: lock_head
-- The job that another of a chain waits for, to be taken out of it; the chain is locked.
select h.id, h.status, h.host_name from relevo.job h
where h.id = (
  select coalesce(
    (select o.id from relevo.job o where o.chain = $2 and not o.chained),
    (select o.id from relevo.job o where o.chain = $2 order by o.sequence limit 1))
  from relevo.job j where j.id = $1 and j.chain = $2 and j.chained
) and h.id <> $1
for update;

-- name: leave_chain
-- Takes a job out of its chain: from now on it runs apart from the others of its token.
update relevo.job set chain = null, chained = false, friendly = concat_ws('; ', friendly, $2::text), version = version + 1,
  modified_at = relevo.now(), modified_by = coalesce($3, modified_by) where id = $1;

-- name: open_locked_gates
-- Opens gates that this transaction has locked; after the statement that freed them.
select relevo.open_job_gates($1::text[]);

-- name: announce_unblocked
-- Writes the event that others no longer wait for a job.
select relevo.announce_jobs(array[id], array[version], array['unblocked'], array[status], array[status], array[name], array[lane],
  array[operation_type], array[attempt], array[host_name], array[error_code], array[created_at], array[started_at])
from relevo.job where id = $1;
