-- Stamps at commit what `relevo.put_rows` wrote, unless the transaction has done so by itself.
create or replace function relevo.stamp() returns trigger language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  perform relevo.stamp_writes();
  return null;
end $$;
