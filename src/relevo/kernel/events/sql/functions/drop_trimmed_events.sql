-- Drops partitions that were trimmed longer ago than any statement lasts, so that no reader that
-- passed the check finds them gone. Excludes everybody for an instant; it gives up rather than wait. It runs
-- as the schema's owner, for hosts need not be allowed to drop tables.
create or replace function relevo.drop_trimmed_events() returns integer language plpgsql volatile security definer
set lock_timeout = '100ms'
set search_path = pg_catalog, pg_temp as $$
declare
  gone record;
  dropped integer := 0;
begin
  for gone in select p.low, p.name from relevo.event_partition p
              where p.trimmed_at < relevo.now() - interval '1 minute' order by p.low loop
    execute format('drop table relevo.%I', gone.name);
    delete from relevo.event_partition p where p.low = gone.low;
    dropped := dropped + 1;
  end loop;
  return dropped;
end $$;
