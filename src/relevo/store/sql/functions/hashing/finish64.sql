-- The last mixing step of MurmurHash3.
create or replace function relevo.finish64(value bigint) returns bigint language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp as $$
begin
  value := relevo.wrap64((value # relevo.shift64(value, 33))::numeric * -49064778989728563);
  value := relevo.wrap64((value # relevo.shift64(value, 33))::numeric * -4265267296055464877);
  return value # relevo.shift64(value, 33);
end $$;
