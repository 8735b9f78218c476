-- Writes one item in the caller's own transaction: kind is create, replace, upsert or delete (then
-- `item` needs only its id and partition key). Nobody is woken unless `notify` asks for it, which
-- makes the commit wait for those of other notifying transactions.
create or replace function relevo.put_item(
  container text, item jsonb, kind text default 'upsert', if_match text default null,
  notify boolean default false)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  home relevo.container;
  key text;
  hash text;
  range_number integer;
  old relevo.item;
  stored boolean;
  here boolean;
  place integer;
  lifetime integer;
  item_id text := item ->> 'id';
begin
  select * into home from relevo.container c where c.name = container;
  if not found then
    raise exception 'there is no container named %', container using errcode = 'undefined_object';
  end if;
  if kind not in ('create', 'replace', 'upsert', 'delete') then
    raise exception 'kind is create, replace, upsert or delete, not %', kind using errcode = 'invalid_parameter_value';
  end if;
  if jsonb_typeof(item) <> 'object' or jsonb_typeof(item -> 'id') is distinct from 'string'
     or length(item_id) not between 1 and 255 then
    raise exception 'an item is a JSON object with an id of 1 to 255 characters' using errcode = 'invalid_parameter_value';
  end if;
  if octet_length(item::text) > 1048576 then
    raise exception 'an item has at most 1048576 bytes, not %', octet_length(item::text) using errcode = 'program_limit_exceeded';
  end if;
  item := item - array['_rid', '_self', '_etag', '_ts', '_lsn'];
  select string_agg(relevo.epk_component(v), '' order by n), '[' || string_agg(relevo.pk_component(v), ',' order by n) || ']'
    into hash, key
  from (select n, item #> string_to_array(ltrim(path, '/'), '/') as v
        from unnest(home.partition_key) with ordinality as p (path, n)) as parts;
  select id into strict range_number from relevo.feed_range f
  where f.container_id = home.id and f.sealed_lsn is null and hash >= f.epk_min and hash < f.epk_max;
  select * into old from relevo.item i
  where i.container_id = home.id and i.pk = key and i.id = item_id for update;
  if not found then  -- a new key has no row to lock, and may have got one while we waited
    perform relevo.lock_new_keys(home.id, array[key], array[item_id], array[range_number]);
    select * into old from relevo.item i
    where i.container_id = home.id and i.pk = key and i.id = item_id for update;
  end if;
  stored := found;
  here := stored and (old.expires_at is null or old.expires_at > relevo.now());
  if kind = 'create' and here then
    raise exception 'item % exists in container %', item_id, container using errcode = 'unique_violation';
  elsif kind in ('replace', 'delete') and not here then
    raise exception 'item % does not exist in container %', item_id, container using errcode = 'no_data_found';
  elsif if_match is not null and (not here or if_match not in ('*', relevo.etag(old.lsn, old.ordinal))) then
    raise exception 'item % has another etag', item_id using errcode = 'RV412';
  end if;
  place := coalesce(nullif(current_setting('relevo.ordinal', true), '')::integer, 0) + 2;
  perform set_config('relevo.ordinal', place::text, true);
  -- As for all writers: an item's own ttl counts only where its container has one.
  if home.default_ttl is not null then
    if item ? 'ttl' and (jsonb_typeof(item -> 'ttl') <> 'number' or item ->> 'ttl' !~ '^-?[0-9]{1,9}$') then
      raise exception 'ttl is a whole number of seconds, not %', item -> 'ttl' using errcode = 'invalid_parameter_value';
    end if;
    lifetime := coalesce((item ->> 'ttl')::integer, home.default_ttl);
  end if;
  insert into relevo.stamp_request (range_id) values (range_number) on conflict do nothing;
  if home.retention is not null and stored and not here then
    -- An expired item that was not purged yet is deleted first; its place is the odd ordinal.
    insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts, operation, ttl_expired, pk, id, epk, body, previous)
    values (home.id, range_number, place - 1, 0, nullif(old.lsn, 0), relevo.now(), 'delete', true, key, item_id, hash, null,
            case when home.previous_images then old.body end);
  end if;
  if home.retention is not null then
    insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts, operation, pk, id, epk, body, previous)
    values (home.id, range_number, place, 0, case when here then nullif(old.lsn, 0) end, relevo.now(),
            case when kind = 'delete' then 'delete' when here then 'replace' else 'create' end,
            key, item_id, hash, case when kind <> 'delete' then item end,
            case when here and home.previous_images then old.body end);
  end if;
  if kind = 'delete' then
    delete from relevo.item i where i.container_id = home.id and i.pk = key and i.id = item_id;
  else
    insert into relevo.item (container_id, range_id, ordinal, lsn, ts, expires_at, pk, id, epk, body)
    values (home.id, range_number, place, 0, relevo.now(),
            relevo.now() + case when lifetime > 0 then make_interval(secs => lifetime) end, key, item_id, hash, item)
    on conflict (container_id, pk, id) do update set
      range_id = excluded.range_id, ordinal = excluded.ordinal, lsn = 0, ts = excluded.ts,
      expires_at = excluded.expires_at, body = excluded.body;
  end if;
  if notify then
    perform pg_notify('relevo', E'sql\nfeed:' || home.id);
  end if;
end $$;
