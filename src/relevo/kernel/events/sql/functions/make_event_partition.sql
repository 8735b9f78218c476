-- Sees to it that there is a partition for an instant: if none reaches it, one from the end of the
-- last to the end of that day (UTC). It is attached, which excludes neither appends nor reads. It runs as
-- the schema's owner, for hosts need not be allowed to make tables.
create or replace function relevo.make_event_partition(instant timestamptz) returns boolean language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  starts timestamptz;
  ends constant timestamptz := date_trunc('day', instant, 'UTC') + interval '24 hours';
  table_name text;
begin
  lock table relevo.event_batch in share update exclusive mode;
  select max(p.high) into starts from relevo.event_partition p;
  if starts > instant then return false; end if;
  starts := coalesce(starts, ends - interval '24 hours');
  table_name := 'event_' || to_char(starts at time zone 'UTC', 'YYYYMMDD');
  execute format('create table relevo.%I (like relevo.event_batch including all)', table_name);
  execute format('alter table relevo.%I replica identity full', table_name);
  execute format('alter table relevo.event_batch attach partition relevo.%I for values from (%L) to (%L)',
                 table_name, starts, ends);
  insert into relevo.event_partition (low, high, name) values (starts, ends, table_name);
  return true;
end $$;
