-- description: items written inside the caller's own transaction, through any driver
-- locks: nothing that exists; all objects are new

-- 64-bit arithmetic that wraps, as MurmurHash3 needs it.
create function relevo.wrap64(value numeric) returns bigint language sql immutable strict parallel safe
return (mod(mod(value, 18446744073709551616) + 18446744073709551616 + 9223372036854775808,
            18446744073709551616) - 9223372036854775808)::bigint;

create function relevo.rotate64(value bigint, bits integer) returns bigint
language sql immutable strict parallel safe
return (value << bits) | ((value >> (64 - bits)) & ((1::bigint << bits) - 1));

create function relevo.shift64(value bigint, bits integer) returns bigint
language sql immutable strict parallel safe
return (value >> bits) & ((1::bigint << (64 - bits)) - 1);

create function relevo.finish64(value bigint) returns bigint language plpgsql immutable strict parallel safe as $$
begin
  value := relevo.wrap64((value # relevo.shift64(value, 33))::numeric * -49064778989728563);
  value := relevo.wrap64((value # relevo.shift64(value, 33))::numeric * -4265267296055464877);
  return value # relevo.shift64(value, 33);
end $$;

-- Little-endian bytes as a number; bytes past the end count as zero.
create function relevo.word64(data bytea, start integer) returns bigint
language sql immutable strict parallel safe
return (select coalesce(bit_or(get_byte(data, i)::bigint << (8 * (i - start))), 0)
        from generate_series(start, least(start + 7, length(data) - 1)) i);

-- The hash of one component of a partition key (change-feed 3.1): MurmurHash3 x64 128, seed 0,
-- bytes reversed, first byte AND 3F, upper-case hex.
create function relevo.epk_hash(data bytea) returns text language plpgsql immutable strict parallel safe as $$
declare
  c1 constant numeric := -8663945395140668459;
  c2 constant numeric := 5545529020109919103;
  h1 bigint := 0;
  h2 bigint := 0;
  size constant integer := length(data);
  place integer := 0;
  k1 bigint;
  k2 bigint;
  digest bytea;
begin
  loop
    k1 := relevo.wrap64(relevo.rotate64(relevo.wrap64(relevo.word64(data, place) * c1), 31) * c2);
    k2 := relevo.wrap64(relevo.rotate64(relevo.wrap64(relevo.word64(data, place + 8) * c2), 33) * c1);
    if place + 16 <= size then
      h1 := relevo.wrap64((relevo.wrap64(relevo.rotate64(h1 # k1, 27)::numeric + h2)) * 5::numeric + 1390208809);
      h2 := relevo.wrap64((relevo.wrap64(relevo.rotate64(h2 # k2, 31)::numeric + h1)) * 5::numeric + 944331445);
      place := place + 16;
    else
      h1 := h1 # k1 # size;
      h2 := h2 # k2 # size;
      exit;
    end if;
  end loop;
  h1 := relevo.wrap64(h1::numeric + h2);
  h2 := relevo.wrap64(h2::numeric + h1);
  h1 := relevo.finish64(h1);
  h2 := relevo.finish64(h2);
  h1 := relevo.wrap64(h1::numeric + h2);
  h2 := relevo.wrap64(h2::numeric + h1);
  digest := int8send(h2) || int8send(h1);
  return upper(encode(set_byte(digest, 0, get_byte(digest, 0) & 63), 'hex'));
end $$;

create function relevo.epk_component(value jsonb) returns text language plpgsql immutable parallel safe as $$
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

-- The canonical partition key, as Relevo's other writers make it: 1 and 1.0 are one key, numbers
-- that are no exact integers are the bytes of their double, a path that the item lacks is {}.
create function relevo.pk_component(value jsonb) returns text language sql immutable parallel safe
return case when value is null then '{}'
            when jsonb_typeof(value) = 'number' and abs(value::numeric) <= 9007199254740992
                 and value::numeric = trunc(value::numeric) then trunc(value::numeric)::text
            when jsonb_typeof(value) = 'number' then '{"n":"' || encode(float8send(value::float8), 'hex') || '"}'
            else value::text end;

-- One row per transaction and range: its deferred trigger stamps at commit, so that a caller that
-- idles between write and commit does not hold up its range.
create table relevo.stamp_request (
  xid      xid8 not null default pg_current_xact_id(),
  range_id integer not null,
  primary key (xid, range_id)
);

create function relevo.stamp() returns trigger language plpgsql volatile as $$
declare
  touched integer[];
  wanted integer[];
  one integer;
  lsn_drawn bigint;
  stamped_at timestamptz;
begin
  select array_agg(range_id order by range_id) into touched
  from relevo.stamp_request where xid = pg_current_xact_id();
  if touched is null then return null; end if;  -- an earlier call of this transaction did it all
  delete from relevo.stamp_request where xid = pg_current_xact_id();
  wanted := touched;
  -- A range that was split meanwhile passes its rows to its children, whose ids are higher.
  while not relevo.lock_ranges(wanted) loop
    with moved as (
      update relevo.item i set range_id = f.id from relevo.feed_range f
      where i.range_id = any (wanted) and i.lsn = 0 and f.container_id = i.container_id
        and f.sealed_lsn is null and i.epk >= f.epk_min and i.epk < f.epk_max
      returning f.id
    ), moved_versions as (
      update relevo.item_version i set range_id = f.id from relevo.feed_range f
      where i.range_id = any (wanted) and i.lsn = 0 and f.container_id = i.container_id
        and f.sealed_lsn is null and i.epk >= f.epk_min and i.epk < f.epk_max
      returning f.id
    )
    select array_agg(distinct id order by id) into wanted
    from (select id from moved union select id from moved_versions) as now_in;
    if wanted is null then return null; end if;
  end loop;
  foreach one in array wanted loop
    lsn_drawn := nextval('relevo.lsn');
    stamped_at := greatest(relevo.now_after_waiting(), (select max(at) from relevo.feed_time where range_id = one));
    update relevo.item set lsn = lsn_drawn, ts = stamped_at where range_id = one and lsn = 0;
    update relevo.item_version set lsn = lsn_drawn, ts = stamped_at where range_id = one and lsn = 0;
    insert into relevo.feed_time (range_id, at, lsn)
      values (one, date_trunc('second', stamped_at), lsn_drawn) on conflict do nothing;
  end loop;
  return null;
end $$;
create constraint trigger stamp after insert on relevo.stamp_request
  deferrable initially deferred for each row execute function relevo.stamp();

-- Writes one item in the caller's own transaction: kind is create, replace, upsert or delete (then
-- `item` needs only its id and partition key). Nobody is woken unless `notify` asks for it, which
-- makes the commit wait for those of other notifying transactions.
create function relevo.put_item(
  container text, item jsonb, kind text default 'upsert', if_match text default null,
  notify boolean default false)
returns void language plpgsql volatile as $$
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
