-- Jobs by id, in any state. (The view `relevo.jobs` would read every parcel.)
create or replace function relevo.jobs_by_id(wanted uuid[]) returns setof relevo.job language sql stable
begin atomic
  select * from relevo.job j where j.id = any (wanted) and not j.deleted
  union all
  select j.* from unnest(relevo.parcels_spanning(wanted)) as n cross join lateral relevo.jobs_in_parcels(n, n) as j where j.id = any (wanted)
  union all
  select * from relevo.job_history h where h.id = any (wanted);
end;
