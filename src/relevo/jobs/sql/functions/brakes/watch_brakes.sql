-- Puts brakes on, probes, renews and lifts them. Returns the changes, and writes events.
create or replace function relevo.watch_brakes(most integer, span interval, pause interval)
returns table (extension text, change text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  brake relevo.job_brake;
  verdict text;
  found_id uuid;
  found_attempt integer;
  changed text[] := '{}';
  changes text[] := '{}';
begin
  for brake in select * from relevo.job_brake b where b.until <= at order by b.extension for update loop
    verdict := case when brake.probe is null then 'again' else relevo.judge_probe(brake) end;
    if verdict = 'again' then
      select j.id, j.attempt into found_id, found_attempt from relevo.job j
      where j.extension = brake.extension and j.status = 10 and j.waiting_event and j.error_code = -2147088105
      order by j.rank, j.sequence limit 1 for update skip locked;
      if found_id is null then
        verdict := 'off';
      else
        update relevo.job j set waiting_event = false, postpone_until = least(j.postpone_until, at) where j.id = found_id;
        update relevo.job_brake b set probe = found_id, probe_attempt = found_attempt where b.extension = brake.extension;
      end if;
    end if;
    if verdict = 'off' then
      delete from relevo.job_brake b where b.extension = brake.extension;
      delete from relevo.job_failure f where f.extension = brake.extension;
    elsif verdict = 'on' then
      update relevo.job_brake b set until = at + pause, probe = null, probe_attempt = null where b.extension = brake.extension;
    end if;
    if verdict in ('on', 'off') then
      changed := changed || brake.extension;
      changes := changes || verdict;
    end if;
  end loop;
  with put as (
    insert into relevo.job_brake (extension, handlers, since, until)
    select s.extension, array_agg(s.handler), at, at + pause
    from (
      select f.extension, f.handler, sum(f.failures) as failures from relevo.job_failure f
      where f.minute > at - span group by 1, 2
    ) s
    group by s.extension having sum(s.failures) > most
    on conflict do nothing
    returning extension
  )
  select changed || coalesce(array_agg(p.extension), '{}'), changes || coalesce(array_agg('on'::text), '{}')
  into changed, changes from put p;
  delete from relevo.job_failure f where f.minute < at - span - interval '1 minute';
  if cardinality(changed) > 0 then
    perform relevo.append_events(
      array_agg('relevo.brake.' || c.change), array_agg(1::smallint), array_agg('extension/' || c.extension),
      array_agg((extract(epoch from at) * 1000000)::bigint),
      array_agg(jsonb_strip_nulls(jsonb_build_object('extension', c.extension, 'until', b.until))::text), pg_backend_pid())
    from unnest(changed, changes) as c (extension, change) left join relevo.job_brake b on b.extension = c.extension;
  end if;
  return query select c.extension, c.change from unnest(changed, changes) as c (extension, change);
end $$;
