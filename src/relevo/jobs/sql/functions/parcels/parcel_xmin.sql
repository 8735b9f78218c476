-- The transaction that stored or claimed the parcel of a job, as its row shows it.
create or replace function relevo.parcel_xmin(job uuid) returns xid language sql stable
return (select p.xmin from relevo.job_parcel p where p.span @> job and job = any (p.ids));
