-- Whether a job is not completed yet.
create or replace function relevo.is_live(job uuid) returns boolean language sql stable
return exists (select from relevo.job j where j.id = job and not j.deleted) or relevo.is_parcelled(job);
