-- Stamps at commit what `relevo.put_rows` wrote, unless the transaction has done so by itself. It runs as
-- the schema's owner, because the committing role may have the right to put items only.
create or replace function relevo.stamp() returns trigger language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.stamp_writes();
  return null;
end $$;
