-- Closes batches: waits for submits into them that are under way, and refuses later ones. With `cancel` the leader also
-- cancels their jobs. Returns those that exist.
create or replace function relevo.close_batches(ids uuid[], cancel boolean[]) returns uuid[] language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  closed uuid[];
  stopped uuid[];
begin
  perform from relevo.job_batch b where b.id = any (ids) order by b.id for update;
  with changed as (
    update relevo.job_batch b set version = b.version + 1, closed_at = coalesce(b.closed_at, relevo.now()),
      canceled_at = case when cancel[1] and b.ended_at is null then coalesce(b.canceled_at, relevo.now()) else b.canceled_at end,
      canceling = b.canceling or (cancel[1] and b.ended_at is null)
    where b.id = any (ids) and (b.closed_at is null or (cancel[1] and b.ended_at is null and not b.canceling))
    returning b.id, b.canceling
  ), noted as (
    insert into relevo.job_batch_delta (batch) select c.id from changed c  -- the leader judges whether it has ended
  )
  select array_agg(c.id), array_agg(c.id) filter (where c.canceling) into closed, stopped from changed c;
  if stopped is not null then perform relevo.announce_batches(stopped, 'canceled'); end if;
  return array(select b.id from relevo.job_batch b where b.id = any (ids));
end $$;
