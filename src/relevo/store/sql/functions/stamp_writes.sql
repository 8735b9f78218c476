-- Stamps the writes of this transaction: takes the ranges' locks, an LSN for each, and the time. Returns
-- a row per range. The locks are held to the end of the transaction, which should follow at once.
create or replace function relevo.stamp_writes()
returns table (stamped_range integer, stamped_lsn bigint, stamped_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  wanted integer[];
  are_open boolean;
  with_versions boolean;
  last_second timestamptz;
begin
  with requests as (
    delete from relevo.stamp_request r where r.xid = pg_current_xact_id()
    returning r.range_id, r.with_versions
  )
  select array_agg(r.range_id order by r.range_id), bool_and(f.id is not null), bool_or(r.with_versions)
    into wanted, are_open, with_versions
  from requests r left join relevo.feed_range f on f.id = r.range_id and f.sealed_lsn is null;
  if wanted is null then return; end if;
  loop
    -- A range that was split meanwhile passes its rows to its children. That comes before the locks,
    -- which are then taken in rising order.
    if not are_open then
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
    are_open := relevo.lock_ranges(wanted);
    exit when are_open;
  end loop;
  foreach stamped_range in array wanted loop
    stamped_lsn := nextval('relevo.lsn');
    select max(t.at) into last_second from relevo.feed_time t where t.range_id = stamped_range;
    stamped_ts := greatest(relevo.now_after_waiting(), last_second);
    update relevo.item i set lsn = stamped_lsn, ts = stamped_ts where i.range_id = stamped_range and i.lsn = 0;
    if with_versions then
      update relevo.item_version v set
        lsn = stamped_lsn, ts = stamped_ts,
        previous_lsn = case when v.previous_lsn = 0 then stamped_lsn else v.previous_lsn end
      where v.range_id = stamped_range and v.lsn = 0;
    end if;
    if last_second is distinct from date_trunc('second', stamped_ts) then
      insert into relevo.feed_time (range_id, at, lsn)
        values (stamped_range, date_trunc('second', stamped_ts), stamped_lsn) on conflict do nothing;
    end if;
    return next;
  end loop;
end $$;
