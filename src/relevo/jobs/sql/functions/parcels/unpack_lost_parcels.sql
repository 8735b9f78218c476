-- Unpacks some parcels of hosts that have ended; returns whether there were any.
create or replace function relevo.unpack_lost_parcels(amount integer) returns boolean language plpgsql volatile
set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  p record;
  unpacked boolean := false;
begin
  for p in
    select q.host, q.claim from relevo.job_parcel q
    where q.host is not null and not exists (select from relevo.host x where x.incarnation = q.host and x.ended_at is null)
    order by q.number limit amount
  loop
    perform relevo.unpack_parcels(p.host, array[p.claim]);
    unpacked := true;
  end loop;
  return unpacked;
end $$;
