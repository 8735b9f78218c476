-- Stamps at commit what `relevo.put_item` wrote: takes the ranges' locks, an LSN for each, and the time.
create or replace function relevo.stamp() returns trigger language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
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
