-- Which parcels may have some of these jobs.
create or replace function relevo.parcels_spanning(wanted uuid[]) returns bigint[] language sql stable
set enable_seqscan = off
return array(select distinct p.number from unnest(wanted) as w (id) join relevo.job_parcel p on p.span @> w.id);
