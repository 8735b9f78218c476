-- Submits jobs in the caller's transaction. Returns two numbers: of the transaction, and of the savepoint in which it is
-- called (without one, the same again). They show others how both ended.
create or replace function relevo.submit_jobs_in(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  first uuid := ids[1];
  whole bigint := pg_current_xact_id()::text::bigint;
  part bigint;  -- 32 bits, and not older than the transaction
begin
  perform relevo.submit_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  part := coalesce(
    (select j.xmin from relevo.job j where j.id = first),
    relevo.parcel_xmin(first))::text::bigint;
  part := whole - whole % 4294967296 + part + case when part < whole % 4294967296 then 4294967296 else 0 end;
  return whole || ' ' || coalesce(part, whole);
end $$;
