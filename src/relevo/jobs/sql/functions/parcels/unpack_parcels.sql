-- Unpacks parcels of a host: all, or those of some claims.
create or replace function relevo.unpack_parcels(p_host uuid, claims bigint[] default null) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.unpack_jobs(p.ids) from relevo.job_parcel p
  where p.host = p_host and (claims is null or p.claim = any (claims)) order by p.number;
end $$;
