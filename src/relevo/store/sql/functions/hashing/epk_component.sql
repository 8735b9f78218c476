-- The hash of one component of a partition key: its kind and its bytes.
create or replace function relevo.epk_component(value jsonb) returns text language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp as $$
declare
  number bytea;
begin
  if value is null then return relevo.epk_hash('\x00'); end if;
  case jsonb_typeof(value)
    when 'null' then return relevo.epk_hash('\x01');
    when 'boolean' then return relevo.epk_hash(case when value::boolean then '\x03'::bytea else '\x02' end);
    when 'number' then
      number := float8send(value::float8);
      return relevo.epk_hash('\x05'::bytea || (select string_agg(substr(number, 9 - i, 1), ''::bytea order by i)
                                               from generate_series(1, 8) i));
    when 'string' then return relevo.epk_hash('\x08'::bytea || convert_to(value #>> '{}', 'UTF8') || '\xff'::bytea);
    else raise exception 'a partition key holds text, numbers, booleans or null, not %', jsonb_typeof(value)
      using errcode = 'invalid_parameter_value';
  end case;
end $$;
