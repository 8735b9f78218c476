-- Makes time that was handed out stick while the server's clock goes on as usual. If it fell behind what was handed out, returns
-- true and changes nothing: time has to be moved on then, which is logged.
create or replace function relevo.keep_mark() returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  update relevo.clock c set mark = clock_timestamp() + c.shift where c.mark <= clock_timestamp() + c.shift;
  return not found;
end $$;
