-- The result of the probe of a brake: `wait`, `again` (another is needed), `off` or `on`.
create or replace function relevo.judge_probe(brake relevo.job_brake) returns text language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
  live relevo.job;
  ended smallint;
begin
  select * into live from relevo.job j where j.id = brake.probe;
  if found then
    if live.status <> 10 then return 'wait'; end if;
    if live.attempt = brake.probe_attempt then
      -- Not started: about to be due, unless a client postponed it.
      return case when live.waiting_event or live.postpone_until is null or live.postpone_until > relevo.now()
        then 'again' else 'wait' end;
    end if;
    return case when live.waiting_event then 'off' else 'on' end;
  end if;
  select h.status into ended from relevo.job_history h where h.id = brake.probe;
  -- A success may have left no record.
  return case ended when 31 then 'on' when 32 then 'again' else 'off' end;
end $$;
