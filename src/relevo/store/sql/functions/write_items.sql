-- Writes a group of calls: locks ranges, stamps, judges, applies. Rows of one call take effect together
-- or not at all and share an LSN per range. Returns one row per given row, in order; `outcome` is
-- created, replaced, deleted, or why nothing was done: exists, missing, mismatch, skipped (another row
-- of the same call was refused), busy (another transaction holds an item of the call, or creates it),
-- untried (so many calls were busy that this one has to be sent again).
-- It waits for the commits of other writers of these ranges and for nothing else. A sealed range
-- raises RV001: read the range map again.
create or replace function relevo.write_items(
  container integer, calls integer[], kinds text[], pks text[], ids text[], epks text[],
  ranges integer[], bodies text[], conditions text[], ttls integer[],
  first_lsn bigint default null, first_ordinal integer default 0)
returns table (n bigint, outcome text, written_lsn bigint, written_ordinal integer, written_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  held record;
begin
  if not relevo.lock_ranges(ranges) then
    raise exception 'a range was split meanwhile' using errcode = 'RV001';
  end if;
  -- Before the time limit on locks, which is meant for keys and not for changes of the tables.
  lock table relevo.item, relevo.item_version, relevo.feed_time in row exclusive mode;
  begin
    return query select * from relevo.apply_items(
      container, calls, kinds, pks, ids, epks, ranges, bodies, conditions, ttls, first_lsn, first_ordinal,
      '{}', '{}');
    return;
  exception when lock_not_available then
    held := relevo.contested_calls(container, calls, kinds, pks, ids);
  end;
  return query select * from relevo.apply_items(
    container, calls, kinds, pks, ids, epks, ranges, bodies, conditions, ttls, first_lsn, first_ordinal,
    held.contested, held.untried);
end $$;
