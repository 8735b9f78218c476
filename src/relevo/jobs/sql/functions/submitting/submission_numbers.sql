-- The numbers of the caller's transaction, and of the savepoint in which a job was stored (without one, the same again). They
-- show others how both ended.
create or replace function relevo.submission_numbers(first uuid) returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  whole bigint := pg_current_xact_id()::text::bigint;
  part bigint;  -- 32 bits, and not older than the transaction
begin
  part := coalesce(
    (select j.xmin from relevo.job j where j.id = first),
    relevo.parcel_xmin(first))::text::bigint;
  part := whole - whole % 4294967296 + part + case when part < whole % 4294967296 then 4294967296 else 0 end;
  return whole || ' ' || coalesce(part, whole);
end $$;
