-- Turns about `amount` waiting jobs of some handlers in parcels into rows, so that each can be changed.
create or replace function relevo.unpack_ready(p_handlers text[], amount integer) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.unpack_jobs(p.ids) from (
    select q.ids from relevo.job_parcel q where q.host is null and q.handler = any (p_handlers)
    order by q.number limit amount / relevo.parcel_max() + 1
  ) p;
end $$;
