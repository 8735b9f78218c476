-- Stamps what this transaction has put: takes the ranges' locks, an LSN for each, and the time. Answers
-- a row per range. The locks are held to the end of the transaction, which should follow at once.
create or replace function relevo.stamp_writes()
returns table (stamped_range integer, stamped_lsn bigint, stamped_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  wanted integer[];
begin
  select array_agg(r.range_id order by r.range_id) into wanted
  from relevo.stamp_request r where r.xid = pg_current_xact_id();
  if wanted is null then return; end if;
  delete from relevo.stamp_request r where r.xid = pg_current_xact_id();
  loop
    -- A range that was split meanwhile passes its rows to its children. That comes before the locks,
    -- which are then taken in rising order.
    if exists (select from unnest(wanted) as w (id) where not exists (
                 select from relevo.feed_range f where f.id = w.id and f.sealed_lsn is null)) then
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
      if wanted is null then return; end if;
    end if;
    exit when relevo.lock_ranges(wanted);
  end loop;
  foreach stamped_range in array wanted loop
    stamped_lsn := nextval('relevo.lsn');
    stamped_ts := greatest(relevo.now_after_waiting(),
                           (select max(t.at) from relevo.feed_time t where t.range_id = stamped_range));
    update relevo.item i set lsn = stamped_lsn, ts = stamped_ts where i.range_id = stamped_range and i.lsn = 0;
    update relevo.item_version v set
      lsn = stamped_lsn, ts = stamped_ts,
      previous_lsn = case when v.previous_lsn = 0 then stamped_lsn else v.previous_lsn end
    where v.range_id = stamped_range and v.lsn = 0;
    insert into relevo.feed_time (range_id, at, lsn)
      values (stamped_range, date_trunc('second', stamped_ts), stamped_lsn) on conflict do nothing;
    return next;
  end loop;
end $$;
