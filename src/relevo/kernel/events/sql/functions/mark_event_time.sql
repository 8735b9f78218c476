-- Notes how far the log has come: events that are not older than the mark have higher LSNs than it. So whoever looks for an
-- instant begins at a mark, and appends need no index by time.
create or replace function relevo.mark_event_time() returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  lsn constant bigint := (select l.last_value from relevo.lsn l);  -- before the time: an event draws its LSN after its time
begin
  insert into relevo.event_time (at, lsn)
  values (greatest(relevo.now_after_waiting(), (select min(p.low) from relevo.event_partition p)), lsn)
  on conflict (at) do nothing;
end $$;
