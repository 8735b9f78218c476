-- Writes one item in the caller's own transaction: kind is create, replace, upsert or delete (then
-- `item` needs only its id and partition key). Nobody is woken unless `notify` asks for it, which
-- makes the commit wait for those of other notifying transactions. It runs as the schema's owner, so that
-- a role that may call it needs no right to read or write items.
create or replace function relevo.put_item(
  container text, item jsonb, kind text default 'upsert', if_match text default null,
  notify boolean default false)
returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  home relevo.container;
  key text;
  hash text;
  key_bytes integer;
  item_id text := item ->> 'id';
  done text;
begin
  select * into home from relevo.container c where c.name = container;
  if not found then
    raise exception 'there is no container named %', container using errcode = 'undefined_object';
  end if;
  if kind is null or kind not in ('create', 'replace', 'upsert', 'delete') then
    raise exception 'kind is create, replace, upsert or delete, not %', kind using errcode = 'invalid_parameter_value';
  end if;
  item := item - array['_rid', '_self', '_etag', '_ts', '_lsn'];
  perform relevo.check_item(home, item);
  select string_agg(relevo.epk_component(v), '' order by n), '[' || string_agg(relevo.pk_component(v), ',' order by n) || ']',
         sum(case jsonb_typeof(v) when 'string' then octet_length(v #>> '{}') else 8 end)
    into hash, key, key_bytes
  from (select n, item #> string_to_array(ltrim(path, '/'), '/') as v
        from unnest(home.partition_key) with ordinality as p (path, n)) as parts;
  if key_bytes > 2048 then
    raise exception 'a partition key of % bytes is too long; at most 2048 are allowed', key_bytes
      using errcode = 'program_limit_exceeded';
  elsif octet_length(key) + octet_length(item_id) > 2400 then
    raise exception 'an item''s id and its partition key as JSON have % bytes together, and at most 2400 are allowed',
      octet_length(key) + octet_length(item_id) using errcode = 'program_limit_exceeded';
  end if;
  select p.outcome into strict done from relevo.put_rows(
    home.id, array[kind], array[key], array[item_id], array[hash],
    array[case when kind <> 'delete' then item::text end], array[if_match],
    array[case when home.default_ttl is not null then (item ->> 'ttl')::integer end]) p;
  case done
    when 'exists' then
      raise exception 'item % exists in container %', item_id, container using errcode = 'unique_violation';
    when 'missing' then
      raise exception 'item % does not exist in container %', item_id, container using errcode = 'no_data_found';
    when 'mismatch' then
      raise exception 'item % has another etag', item_id using errcode = 'RV412';
    else null;
  end case;
  if notify then
    perform pg_notify('relevo', E'sql\nfeed:' || home.id);
  end if;
end $$;
