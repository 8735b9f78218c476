-- Makes those of some jobs ready that wait for an event.
create or replace function relevo.wake_jobs(ids uuid[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare found uuid[];
begin
  select array_agg(x.id) into found from (
    select j.id from relevo.job j where j.id = any (ids) and j.status = 10 and j.waiting_event order by j.id for update
  ) x;
  if found is not null then
    perform from relevo.move_jobs(found, array_fill('signal'::text, array[cardinality(found)]));
  end if;
end $$;
