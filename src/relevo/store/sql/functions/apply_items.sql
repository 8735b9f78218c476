-- Judges and writes a group of calls whose stamp locks are held, so nothing of these ranges can be
-- committed meanwhile. It never waits for an item: a row that another transaction holds makes its
-- call `busy`, and so do the contested calls; untried ones are left out. A key that another
-- transaction is creating shows itself only by the wait of the insert; then this raises
-- lock_not_available. See `relevo.write_items`.
create or replace function relevo.apply_items(
  container integer, calls integer[], kinds text[], pks text[], ids text[], epks text[],
  ranges integer[], bodies text[], conditions text[], ttls integer[],
  first_lsn bigint, first_ordinal integer,
  contested integer[], untried integer[])
returns table (n bigint, outcome text, written_lsn bigint, written_ordinal integer, written_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '20ms' as $$
declare
  lsns bigint[];
  stamp timestamptz;
  keeps record;
begin
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
      case when g.call = any (untried) then 'untried'
           when g.call = any (contested) or i.id is null and (
             select true from relevo.item x where x.container_id = container and x.pk = g.pk and x.id = g.id)
             then 'busy'
           when g.kind = 'create' and live.here then 'exists'
           when g.kind in ('replace', 'delete') and not live.here then 'missing'
           when g.condition is not null and (not live.here
             or g.condition not in ('*', relevo.etag(i.lsn, i.ordinal))) then 'mismatch'
           else 'good' end as verdict
    from given g
    left join lateral (
      select i.* from relevo.item i where i.container_id = container and i.pk = g.pk and i.id = g.id
      for update skip locked) i on true
    cross join lateral (select i.id is not null and (i.expires_at is null or i.expires_at > stamp) as here) live
  ), called as (
    select j.*, bool_and(j.verdict = 'good') over (partition by j.call) as good,
      min(j.verdict) filter (where j.verdict in ('busy', 'untried')) over (partition by j.call) as held,
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
    case when c.held is not null then c.held
         when not c.good then case when c.verdict = 'good' then 'skipped' else c.verdict end
         when c.kind = 'delete' then 'deleted'
         when c.stored and c.expired is not true then 'replaced' else 'created' end,
    c.lsn, c.ordinal, stamp
  from called c order by c.n;
end $$;
