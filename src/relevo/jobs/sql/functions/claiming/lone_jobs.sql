-- Ready jobs of some handlers that must run alone, in order, in whatever lane they are stored.
create or replace function relevo.lone_jobs(handlers text[]) returns uuid[]
language plpgsql stable set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
begin
  return array(
    select j.id from relevo.job j
    where j.alone and j.status = 0 and not j.chained and not j.capped and j.handler = any (handlers)
      and not exists (
        select from relevo.job_brake b where j.handler = any (b.handlers) and j.id is distinct from b.probe)
    order by j.rank, j.sequence limit 100);
end $$;
