-- Delivers an event to all jobs that wait for it, or keeps it for the first that will; returns how many got it.
create or replace function relevo.signal_jobs(p_event text, p_key text, p_data text) returns integer language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare waiters uuid[];
begin
  perform relevo.lock_job_event(p_event, p_key);
  with given as (
    update relevo.job_wait w set came_at = relevo.now(), data = p_data, woken = true
    where w.event = p_event and w.key = p_key and w.came_at is null
      and exists (select from relevo.job j where j.id = w.job and not j.deleted)
    returning w.job
  )
  select array_agg(distinct job) into waiters from given;
  if waiters is null then
    insert into relevo.job_event (event, key, data) values (p_event, p_key, p_data);
    return 0;
  end if;
  perform relevo.wake_jobs(waiters);
  return cardinality(waiters);
end $$;
