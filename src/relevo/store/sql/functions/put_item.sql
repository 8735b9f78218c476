-- Writes one item in the caller's own transaction: kind is create, replace, upsert or delete (then
-- `item` needs only its id and partition key). It sends a wake-up only with `notify`, which
-- makes the commit wait for those of other notifying transactions. It runs as the schema's owner, so that
-- a role that may call it needs no right to read or write items. Plans are made once, as in `relevo.put_rows`.
create or replace function relevo.put_item(
  container text, item jsonb, kind text default 'upsert', if_match text default null,
  notify boolean default false)
returns void language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  home relevo.container;
  path text;
  part jsonb;
  key text := '';
  hash text := '';
  key_bytes integer := 0;
  item_id text := item ->> 'id';
  place text;
  done record;
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
  foreach path in array home.partition_key loop
    part := item #> string_to_array(ltrim(path, '/'), '/');
    hash := hash || relevo.epk_component(part);
    key := key || case key when '' then '[' else ',' end || relevo.pk_component(part);
    key_bytes := key_bytes + case jsonb_typeof(part) when 'string' then octet_length(part #>> '{}') else 8 end;
  end loop;
  key := key || ']';
  if key_bytes > 2048 then
    raise exception 'a partition key of % bytes is too long; at most 2048 are allowed', key_bytes
      using errcode = 'program_limit_exceeded';
  elsif octet_length(key) + octet_length(item_id) > 2400 then
    raise exception 'an item''s id and its partition key as JSON have % bytes together, and at most 2400 are allowed',
      octet_length(key) + octet_length(item_id) using errcode = 'program_limit_exceeded';
  end if;
  place := coalesce(nullif(current_setting('relevo.ordinal', true), '')::integer, 0) + 2;
  place := set_config('relevo.ordinal', place, true);
  done := relevo.put_row(
    home, kind, key, item_id, hash, item, if_match,
    case when home.default_ttl is not null then (item ->> 'ttl')::integer end, place::integer);
  case done.outcome
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
