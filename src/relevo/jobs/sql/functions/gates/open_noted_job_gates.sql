-- Opens noted gates that no transaction holds; the others stay noted.
create or replace function relevo.open_noted_job_gates() returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  noted bigint[];
  keys text[];
begin
  with picked as (
    select g.id, g.key from relevo.job_gate g order by g.id limit 500 for update skip locked
  ), free as materialized (
    select key from (select distinct key from picked) k
    where pg_try_advisory_xact_lock(1380273160, hashtext(key))
  )
  select array_agg(p.id), array_agg(distinct p.key) into noted, keys
  from picked p join free f on f.key = p.key;
  if noted is null then return; end if;
  delete from relevo.job_gate where id = any (noted);
  perform relevo.open_job_gates(keys);
end $$;
