-- Wakes jobs whose deadline has passed, or whose children have all ended; returns how many.
create or replace function relevo.wake_waiting_jobs(amount integer) returns integer
language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare ready uuid[];
begin
  with late as (
    select w.job from relevo.job_wait w where not w.woken and w.deadline <= relevo.now() order by w.deadline limit amount
  ), parents as (
    select distinct p.job from relevo.job_wait p
    where not p.woken and p.child is not null and not exists (
      select from relevo.job_wait w where w.job = p.job and not w.woken and w.child is not null and relevo.is_live(w.child))
    limit amount
  ), chosen as (select job from late union select job from parents), marked as (
    update relevo.job_wait w set woken = true from chosen c where w.job = c.job returning w.job
  )
  select array_agg(distinct job) into ready from marked;
  if ready is null then return 0; end if;
  perform relevo.wake_jobs(ready);
  return cardinality(ready);
end $$;
