-- Turns about `amount` waiting jobs in parcels into rows, of handlers that no host has served for `patience`.
create or replace function relevo.unpack_unserved(patience interval, amount integer) returns void language sql volatile
begin atomic
  select relevo.unpack_ready(array(
    select distinct p.handler from relevo.job_parcel p
    where exists (select from relevo.host h where h.ended_at is null and h.started_at < relevo.now() - patience)
      and p.host is null and p.created_at < relevo.now() - patience and not exists (
      select from relevo.job_handler h where h.name = p.handler and h.served_at >= relevo.now() - patience)), amount);
end;
