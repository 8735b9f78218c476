-- Makes due jobs ready. Rows of a series that wait for their first start are left out:
-- their next instant is computed first (`relevo.jobs.timers`).
create or replace function relevo.make_jobs_due(amount integer) returns void language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
declare moved relevo.job_move[];
begin
  with due as (
    select j.id from relevo.job j
    where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event
      and not (j.series is not null and j.attempt = 0)
    order by j.postpone_until limit amount for update skip locked
  ), turned as (
    update relevo.job j set status = 0, version = j.version + 1, modified_at = relevo.now(),
      capped = l.owner_cap is not null and j.owner is not null
    from due, relevo.job_lane l where j.id = due.id and l.name = j.lane
    returning j.*
  ), noted as (
    insert into relevo.job_gate (key) select distinct relevo.job_owner_key(lane, owner) from turned where capped
  )
  select array_agg(row(id, 'due', 10, 0, version, host, lane, owner, chain, true, false, name, operation_type,
                       attempt, host_name, error_code, created_at, started_at, series, hold, false, null, batch)::relevo.job_move)
  into moved from turned
  where exists (select from relevo.job_lane l where l.name = turned.lane and l.events = 'all');
  if moved is not null then
    perform set_config('synchronous_commit', 'on', true);  -- readers of the log have seen it
    perform relevo.after_job_moves(moved, '{}', false);
  end if;
end $$;
