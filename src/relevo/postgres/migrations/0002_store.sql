-- description: containers of items, their feed ranges, the log of all versions, writes in any transaction
-- locks: nothing that exists; all objects are new

-- Positions of commit groups. One sequence for all containers; only its order within a range counts,
-- and that is kept because a range's stamp lock is held from the draw to the end of the transaction.
create sequence relevo.lsn as bigint cache 1;

create table relevo.container (
  id              integer generated always as identity primary key,
  name            text not null unique,
  incarnation     uuid not null default gen_random_uuid(),
  partition_key   text[] not null check (cardinality(partition_key) between 1 and 3),
  default_ttl     integer check (default_ttl = -1 or default_ttl > 0),
  retention       interval check (retention > '0'),
  previous_images boolean not null default false,
  versions_since  bigint,
  created_at      timestamptz not null default relevo.now()
);

-- Items of a dropped container are removed in the background, in batches.
create table relevo.dropped_container (
  id         integer primary key,
  ranges     integer[] not null,
  dropped_at timestamptz not null default relevo.now()
);

create table relevo.feed_range (
  id           integer generated always as identity primary key,
  container_id integer not null references relevo.container on delete cascade,
  epk_min      text collate "C" not null,
  epk_max      text collate "C" not null check (epk_min < epk_max),
  parents      integer[] not null default '{}',
  sealed_lsn   bigint,
  trimmed_lsn  bigint not null default 0
);
create index feed_range_container on relevo.feed_range (container_id);

create table relevo.item (
  container_id integer not null,
  range_id     integer not null,
  ordinal      integer not null,
  lsn          bigint not null,
  ts           timestamptz not null,
  expires_at   timestamptz,
  pk           text collate "C" not null,
  id           text collate "C" not null,
  epk          text collate "C" not null,
  body         jsonb not null,
  primary key (container_id, pk, id)
) with (fillfactor = 90);
create index item_feed on relevo.item (range_id, lsn, ordinal);
create index item_expiry on relevo.item (expires_at) where expires_at is not null;

-- All versions and deletes, for containers that keep them.
create table relevo.item_version (
  container_id integer not null,
  range_id     integer not null,
  ordinal      integer not null,
  lsn          bigint not null,
  previous_lsn bigint,
  ts           timestamptz not null,
  operation    text not null check (operation in ('create', 'replace', 'delete')),
  ttl_expired  boolean not null default false,
  pk           text collate "C" not null,
  id           text collate "C" not null,
  epk          text collate "C" not null,
  body         jsonb,
  previous     jsonb
);
create index item_version_feed on relevo.item_version (range_id, lsn, ordinal);

-- Time to position: the first LSN of each second in which a range was written.
create table relevo.feed_time (
  range_id integer not null references relevo.feed_range on delete cascade,
  at       timestamptz not null,
  lsn      bigint not null,
  primary key (range_id, at)
);

create function relevo.etag(lsn bigint, ordinal integer) returns text language sql immutable parallel safe
return '"' || to_hex(lsn) || '-' || ordinal || '"';

-- Keys are locked by their hash, 64 locks per range, since a new key has no row to lock and a row that
-- is deleted and made again is another one to who waited for it. Own writers of one range wait for each
-- other anyway, and the number of locks stays small however many keys a group brings.
create function relevo.lock_keys(pks text[], ids text[], ranges integer[])
returns void language plpgsql volatile as $$
declare number integer;
begin
  for number in
    select distinct k.range_id * 64 + (hashtext(k.pk || k.id) & 63)
    from unnest(pks, ids, ranges) as k (pk, id, range_id) order by 1
  loop
    perform pg_advisory_xact_lock(1380273157, number);
  end loop;
end $$;

-- The same for who may hold the locks long: only keys that have no row.
create function relevo.lock_new_keys(container integer, pks text[], ids text[], ranges integer[])
returns void language sql volatile
begin atomic
  select relevo.lock_keys(array_agg(k.pk), array_agg(k.id), array_agg(k.range_id))
  from unnest(pks, ids, ranges) as k (pk, id, range_id)
  where not exists (select from relevo.item i
                    where i.container_id = container and i.pk = k.pk and i.id = k.id);
end;

-- Takes the stamp locks, in rising order, and answers whether all these ranges are open. What is
-- read after the locks is younger than they are; above READ COMMITTED the rows are locked instead.
create function relevo.lock_ranges(ranges integer[]) returns boolean language plpgsql volatile as $$
declare number integer;
begin
  perform relevo.stay_awake();
  for number in select distinct unnest(ranges) order by 1 loop
    perform pg_advisory_xact_lock(1380273158, number);
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from relevo.feed_range where id = any (ranges) order by id for share;
  end if;
  return not exists (select from unnest(ranges) as r (id)
                     where not exists (select from relevo.feed_range f
                                       where f.id = r.id and f.sealed_lsn is null));
end $$;

-- The time asked again by who waited for a lock inside of a statement; `relevo.now()` is as old as
-- the statement, so that stamps in the order of locks would not be in the order of time.
create function relevo.now_after_waiting() returns timestamptz language sql volatile
begin atomic
  select greatest(clock_timestamp() + c.shift, c.mark) from relevo.clock c;
end;

-- Writes a group of calls: locks items, then ranges, stamps, judges, applies. Rows of one call take
-- effect together or not at all and share an LSN per range. Answers one row per given row, in order;
-- `outcome` is created, replaced, deleted, or why nothing was done: exists, missing, mismatch,
-- skipped (another row of the same call was refused). A sealed range raises RV001: read the range map again.
create function relevo.write_items(
  container integer, calls integer[], kinds text[], pks text[], ids text[], epks text[],
  ranges integer[], bodies text[], conditions text[], ttls integer[],
  first_lsn bigint default null, first_ordinal integer default 0)
returns table (n bigint, outcome text, written_lsn bigint, written_ordinal integer, written_ts timestamptz)
language plpgsql volatile as $$
declare
  lsns bigint[];
  stamp timestamptz;
  keeps record;
begin
  perform relevo.lock_keys(pks, ids, ranges);
  perform 1 from unnest(pks, ids) as k (pk, id)
    join relevo.item i on i.container_id = container and i.pk = k.pk and i.id = k.id
    order by i.pk, i.id for update of i;
  if not relevo.lock_ranges(ranges) then
    raise exception 'a range was split meanwhile' using errcode = 'RV001';
  end if;
  select c.retention is not null as versions, c.previous_images as images, c.default_ttl as ttl
    into keeps from relevo.container c where c.id = container;
  if not found then
    raise exception 'the container was dropped meanwhile' using errcode = 'RV002';
  end if;
  if first_lsn is null then
    select array_agg(nextval('relevo.lsn')) into lsns
    from generate_series(1, (select count(*) from (select distinct * from unnest(calls, ranges)) as pairs));
  else
    lsns := array[first_lsn];
  end if;
  -- Time never runs back inside a range.
  stamp := greatest(relevo.now_after_waiting(), (select max(t.last) from unnest(ranges) as r (id)
    cross join lateral (select max(at) as last from relevo.feed_time where range_id = r.id) t));
  return query
  with given as (
    select g.*, g.body::jsonb as document from unnest(
      calls, kinds, pks, ids, epks, ranges, bodies, conditions, ttls)
      with ordinality as g (call, kind, pk, id, epk, range_id, body, condition, ttl, n)
  ), judged as (
    select g.*, i.lsn as old_lsn, i.body as old_body,
      i.id is not null as stored, i.expires_at <= stamp as expired,
      case when g.kind = 'create' and live.here then 'exists'
           when g.kind in ('replace', 'delete') and not live.here then 'missing'
           when g.condition is not null and (not live.here
             or g.condition not in ('*', relevo.etag(i.lsn, i.ordinal))) then 'mismatch'
           else 'good' end as verdict
    from given g
    left join relevo.item i on i.container_id = container and i.pk = g.pk and i.id = g.id
    cross join lateral (select i.id is not null and (i.expires_at is null or i.expires_at > stamp) as here) live
  ), called as (
    select j.*, bool_and(j.verdict = 'good') over (partition by j.call) as good,
      lsns[dense_rank() over (order by j.call, j.range_id)] as lsn,
      (first_ordinal + 2 * row_number() over (partition by j.call, j.range_id order by j.n) - 1)::integer as ordinal,
      stamp + case when coalesce(j.ttl, keeps.ttl) > 0
                   then make_interval(secs => coalesce(j.ttl, keeps.ttl)) end as expires
    from judged j
  ), stored as (
    insert into relevo.item (container_id, range_id, ordinal, lsn, ts, expires_at, pk, id, epk, body)
    select container, c.range_id, c.ordinal, c.lsn, stamp, c.expires, c.pk, c.id, c.epk, c.document
    from called c where c.good and c.kind <> 'delete'
    on conflict (container_id, pk, id) do update set
      range_id = excluded.range_id, ordinal = excluded.ordinal, lsn = excluded.lsn, ts = excluded.ts,
      expires_at = excluded.expires_at, body = excluded.body
  ), removed as (
    delete from relevo.item i using called c
    where c.good and c.kind = 'delete' and i.container_id = container and i.pk = c.pk and i.id = c.id
  ), logged as (
    insert into relevo.item_version (container_id, range_id, ordinal, lsn, previous_lsn, ts, operation,
                                     ttl_expired, pk, id, epk, body, previous)
    -- An expired item that was not purged yet is deleted first; its place is the even ordinal.
    select container, c.range_id, c.ordinal - 1, c.lsn, c.old_lsn, stamp, 'delete', true, c.pk, c.id,
           c.epk, null, case when keeps.images then c.old_body end
    from called c where keeps.versions and c.good and c.stored and c.expired
    union all
    select container, c.range_id, c.ordinal, c.lsn, case when c.expired is not true then c.old_lsn end, stamp,
           case when c.kind = 'delete' then 'delete'
                when c.stored and c.expired is not true then 'replace' else 'create' end,
           false, c.pk, c.id, c.epk, c.document,
           case when keeps.images and c.expired is not true then c.old_body end
    from called c where keeps.versions and c.good
  ), timed as (
    insert into relevo.feed_time (range_id, at, lsn)
    select c.range_id, date_trunc('second', stamp), min(c.lsn) from called c where c.good group by 1
    on conflict (range_id, at) do nothing
  )
  select c.n,
    case when not c.good then case when c.verdict = 'good' then 'skipped' else c.verdict end
         when c.kind = 'delete' then 'deleted'
         when c.stored and c.expired is not true then 'replaced' else 'created' end,
    c.lsn, c.ordinal, stamp
  from called c order by c.n;
end $$;
