-- Submits jobs in a transaction of somebody else. Answers two numbers: of the transaction, and of what may be undone
-- without it, the savepoint in which this is called (else the same again). By these others see what became of both.
create or replace function relevo.submit_jobs_in(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  first uuid := ids[1];
  whole bigint := pg_current_xact_id()::text::bigint;
  part bigint;  -- 32 bits, and younger than the whole
begin
  perform relevo.submit_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  part := coalesce(
    (select j.xmin from relevo.job j where j.id = first),
    (select p.xmin from relevo.job_parcel p where p.span @> first and first = any (p.ids)))::text::bigint;
  part := whole - whole % 4294967296 + part + case when part < whole % 4294967296 then 4294967296 else 0 end;
  return whole || ' ' || coalesce(part, whole);
end $$;
