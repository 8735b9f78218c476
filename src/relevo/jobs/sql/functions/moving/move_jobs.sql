-- Moves jobs by the transition table; jobs in parcels become rows first. A move without a host waits for claims under way
-- and unpacks again, since they may have put jobs into another parcel.
create or replace function relevo.move_jobs(
  ids uuid[], events text[], p_host uuid default null, claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', p_user uuid default null,
  audit boolean default false, keys text[] default '{}')
returns table (id uuid, before smallint, after smallint, version bigint, host uuid) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.unpack_jobs(ids);
  if p_host is null then
    perform from relevo.job j where j.id = any (ids) order by j.id for update;
    perform relevo.unpack_jobs(ids);
  end if;
  return query select * from relevo.move_unpacked_jobs(
    ids, events, p_host, claims, postpones, delays, errors, messages, friendlies, results, saves, seconds, p_user, audit, keys);
end $$;
