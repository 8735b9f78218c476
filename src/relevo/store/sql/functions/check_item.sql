-- Refuses an item that Relevo's own writers would refuse; the bounds are those of `relevo.limits`.
create or replace function relevo.check_item(home relevo.container, item jsonb) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
declare
  item_id text := item ->> 'id';
  text_bytes integer;
begin
  if jsonb_typeof(item) is distinct from 'object' then
    raise exception 'an item is a JSON object, not %', coalesce(jsonb_typeof(item), 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  -- Counted as compact JSON, without the blanks that jsonb is shown with.
  text_bytes := octet_length(item::text);
  if text_bytes > 1048576 and text_bytes < 2097152 then
    text_bytes := octet_length(regexp_replace(item::text, '("(?:[^"\\]|\\.)*")|\s', '\1', 'g'));
  end if;
  if text_bytes > 1048576 then
    raise exception 'an item has at most 1048576 bytes as JSON, not %', text_bytes
      using errcode = 'program_limit_exceeded',
            hint = 'Keep large content elsewhere and a reference to it here.';
  end if;
  if jsonb_path_exists(item, 'strict $.**{128} ? (@.type() == "object" || @.type() == "array")') then
    raise exception 'JSON is nested 128 levels deep at most' using errcode = 'program_limit_exceeded';
  end if;
  -- Readers take integers of any size, and other numbers as doubles.
  if jsonb_path_exists(item, 'strict $.** ? (@.type() == "number" && @.floor() != @ && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))') then
    raise exception 'a number in the item is too large; numbers with a fraction go up to 1.8e308'
      using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(item -> 'id') is distinct from 'string' or length(item_id) not between 1 and 255
     or item_id ~ E'[/\\\\?#\x01-\x1f\x7f]' then
    raise exception 'an item''s id has 1 to 255 characters and none of / \ ? # or control characters, not %',
      coalesce(left(item_id, 40), 'null') using errcode = 'invalid_parameter_value';
  end if;
  if home.default_ttl is not null and jsonb_typeof(item -> 'ttl') <> 'null' and not (case
       when jsonb_typeof(item -> 'ttl') <> 'number' then false
       when item ->> 'ttl' ~ '^(-1|[1-9][0-9]{0,9})$' then (item ->> 'ttl')::bigint <= 2147483647
       else false end) then
    raise exception 'ttl is 1 to 2147483647 seconds, or -1 for an item that never expires, not %', item -> 'ttl'
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
