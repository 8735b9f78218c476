-- Adds deltas to the counts of their batches, and judges which of these have ended, or go on after a retry. An end submits
-- the batch's own job, once. Returns how many deltas it took; batches that another transaction holds are left for later.
create or replace function relevo.fold_batches(amount integer) returns integer language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  touched uuid[];
  folded integer;
  ended uuid[] := '{}';
  reopened uuid[];
  b relevo.job_batch;
begin
  select array_agg(x.id) into touched from (
    select t.id from relevo.job_batch t
    where t.id in (select d.batch from (select q.batch from relevo.job_batch_delta q order by q.id limit amount) d)
    order by t.id for no key update skip locked
  ) x;
  with gone as (
    delete from relevo.job_batch_delta d
    where d.id = any (array(
        select q.id from relevo.job_batch_delta q
        where q.batch = any (touched) or not exists (select from relevo.job_batch t where t.id = q.batch)
        order by q.id limit amount))
    returning d.*
  ), sums as (
    select g.batch, sum(g.added) as added, sum(g.succeeded) as succeeded, sum(g.failed) as failed, sum(g.canceled) as canceled
    from gone g group by g.batch
  ), counted as (
    update relevo.job_batch t set version = t.version + 1, total = t.total + s.added, succeeded = t.succeeded + s.succeeded,
      failed = t.failed + s.failed, canceled = t.canceled + s.canceled
    from sums s where t.id = s.batch
  )
  select count(*) into folded from gone;
  -- In a snapshot that shows a batch closed, all its jobs and deltas are visible: closing waited for their transactions. A
  -- job that ends meanwhile brings another delta.
  for b in
    select * from relevo.job_batch t
    where t.id = any (touched) and t.closed_at is not null
      -- A retry may have come and gone since the last end.
      and (t.ended_at is null or (t.callback is null and t.condition = 'succeeded' and t.failed + t.canceled = 0))
      and not exists (select from relevo.job j where j.batch = t.id)
      and not exists (select from relevo.job_batch_delta d where d.batch = t.id)
    order by t.id
  loop
    if b.handler is not null and b.callback is null and (b.condition = 'ended' or b.failed + b.canceled = 0) then
      b.callback := relevo.submit_job(b.handler, coalesce(b.data::jsonb, '{}') || jsonb_build_object('batch', jsonb_build_object(
          'id', b.id, 'name', b.name, 'total', b.total, 'succeeded', b.succeeded, 'failed', b.failed, 'canceled', b.canceled)),
        owner => b.owner);
    end if;
    update relevo.job_batch t set ended_at = relevo.now(), canceling = false, callback = b.callback, version = t.version + 1 where t.id = b.id;
    ended := ended || b.id;
  end loop;
  with again as (
    update relevo.job_batch t set ended_at = null, version = t.version + 1
    where t.id = any (touched) and t.ended_at is not null and exists (select from relevo.job j where j.batch = t.id)
    returning t.id
  )
  select array_agg(id) into reopened from again;
  if reopened is not null then perform relevo.announce_batches(reopened, 'reopened'); end if;
  if cardinality(ended) > 0 then perform relevo.announce_batches(ended, 'ended'); end if;
  return folded;
end $$;
