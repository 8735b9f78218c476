-- Whether a job is in a parcel; cheaper than reading the parcel's jobs.
create or replace function relevo.is_parcelled(job uuid) returns boolean language sql stable
return exists (select from relevo.job_parcel p where p.span @> job and job = any (p.ids) and not (job = any (p.done)));
