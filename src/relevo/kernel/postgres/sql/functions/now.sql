-- Statement time, and STABLE, so that an index serves `due <= relevo.now()`.
create or replace function relevo.now() returns timestamptz
language sql stable parallel safe
begin atomic
  select greatest(statement_timestamp() + c.shift, c.mark) from relevo.clock c;
end;
