-- Takes the stamp locks, in ascending order, and returns whether all these ranges are open. Reads after
-- the locks see later commits; above READ COMMITTED the rows are locked instead.
create or replace function relevo.lock_ranges(ranges integer[]) returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock(1380273158, r.id) from (select distinct unnest(ranges) as id order by 1) as r;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from relevo.feed_range where id = any (ranges) order by id for share;
  end if;
  return not exists (select from unnest(ranges) as r (id)
                     where not exists (select from relevo.feed_range f
                                       where f.id = r.id and f.sealed_lsn is null));
end $$;
