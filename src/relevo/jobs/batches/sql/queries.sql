-- name: create
-- Makes a batch; see the function.
select relevo.create_batches(array[$1::uuid], array[$2::text], array[$3::uuid], array[$4::text], array[$5::text], array[$6::text]);

-- name: close
-- Closes a batch, and with $2 cancels its jobs; returns whether it exists.
select cardinality(relevo.close_batches(array[$1::uuid], array[$2::boolean])) > 0;

-- name: read
-- Batches by id, with counts of one moment.
select b.id, b.name, b.version, b.owner, b.created_at, b.closed_at, b.canceled_at, b.ended_at, b.handler, b.condition, b.callback,
  t.total, t.succeeded, t.failed, t.canceled, t.total - t.succeeded - t.failed - t.canceled - r.running as waiting, r.running
from relevo.job_batch b
cross join lateral (
  select b.total + coalesce(sum(d.added), 0)::bigint as total, b.succeeded + coalesce(sum(d.succeeded), 0)::bigint as succeeded,
    b.failed + coalesce(sum(d.failed), 0)::bigint as failed, b.canceled + coalesce(sum(d.canceled), 0)::bigint as canceled
  from relevo.job_batch_delta d where d.batch = b.id
) t
cross join lateral (select count(*) as running from relevo.job j where j.batch = b.id and j.status between 20 and 22) r
where b.id = any ($1::uuid[]);

-- name: page
-- Ids of batches, the newest first, after a position.
select id, created_at from relevo.job_batch
where ($1::timestamptz is null or (created_at, id) < ($1, $2::uuid)) and ($3::boolean is null or (ended_at is null) = $3)
  and ($4::uuid[] is null or owner = any ($4))
order by created_at desc, id desc limit $5;

-- name: ends
-- How jobs of a batch ended, in the order of their ends, after a position.
select id, handler, name, status, result, error_code, coalesce(friendly, message) as text, completed_at
from relevo.job_history where batch = $1 and (completed_at, id) > ($2, $3::uuid) order by completed_at, id limit $4;

-- name: fold
-- Adds deltas to the counts of their batches; see the function.
select relevo.fold_batches($1);

-- name: canceling
-- Some jobs of canceled batches that are still to be canceled.
select j.id from relevo.job_batch b cross join lateral (
  select x.id from relevo.job x where x.batch = b.id and x.status in (0, 10, 20, 21) and not x.deleted limit $1) j
where b.canceling limit $1;

-- name: canceling_of
-- The same of one batch.
select id from relevo.job where batch = $1 and status in (0, 10, 20, 21) and not deleted limit $2;

-- name: forget
-- Removes batches that have ended so long ago that no record of their jobs is left.
delete from relevo.job_batch b where b.id = any (array(
  select x.id from relevo.job_batch x where x.ended_at < relevo.now() - $1::interval
    and not exists (select from relevo.job_history h where h.batch = x.id)
  order by x.ended_at limit $2))
returning b.id;
