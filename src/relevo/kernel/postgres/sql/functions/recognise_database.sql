-- Records the identity of the database at the first call. If the database was restored or copied since, LSNs continue above
-- every one that may have been used after the backup, and the LSNs in between are recorded as lost. Returns `restored` to the
-- first host (`serving`) after that, `behind` if the sequences were not copied with the rows, and null otherwise. It runs as
-- the schema's owner, because hosts may not set sequences.
create or replace function relevo.recognise_database(serving boolean) returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  last bigint;
  skipped constant bigint := 1099511627776;
begin
  insert into relevo.setting (key, value)
  select 'database', jsonb_build_object('identity', relevo.database_identity(), 'lost', jsonb_build_array())
  where relevo.is_served_database() is null
  on conflict (key) do nothing;
  if not relevo.is_served_database() then
    perform from relevo.setting s where s.key = 'database' for update;
    if not relevo.is_served_database() then  -- and no other caller was first
      last := (select l.last_value from relevo.lsn l);
      if last < greatest(
           (select max((select max(i.lsn) from relevo.item i where i.range_id = r.id)) from relevo.feed_range r),
           (select max((select max(b.last) from relevo.event_batch b where b.stripe = s.id)) from relevo.event_stripe s)) then
        return 'behind';
      end if;
      perform setval('relevo.lsn'::regclass, last + skipped);
      update relevo.setting s set updated_at = relevo.now(), value = s.value
        || jsonb_build_object('identity', relevo.database_identity(), 'restored_at', relevo.now(), 'unreported', true)
        || jsonb_build_object('lost', s.value -> 'lost' || jsonb_build_array(jsonb_build_array(last + 1, last + skipped)))
      where s.key = 'database';
    end if;
  end if;
  if not serving then return null; end if;
  update relevo.setting s set value = s.value - 'unreported' where s.key = 'database' and s.value -> 'unreported' = 'true';
  return case when found then 'restored' end;
end $$;
