-- Turns jobs in parcels into rows: ready, or held by the same host under the same claim. Returns how many.
create or replace function relevo.unpack_jobs(wanted uuid[]) returns integer language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  near bigint[];
  p record;
  taken uuid[];
  unpacked integer := 0;
begin
  if not exists (select from relevo.job_parcel) then return 0; end if;
  near := relevo.parcels_spanning(wanted);
  for p in
    select q.number from relevo.job_parcel q
    where q.number = any (near) and exists (
      select from unnest(q.ids) as i (id) join unnest(wanted) as w (id) on w.id = i.id
      left join unnest(q.done) as d (id) on d.id = i.id where d.id is null)
    order by q.number for update
  loop
    with made as (
      insert into relevo.job select * from relevo.jobs_in_parcels(p.number, p.number) as j where j.id = any (wanted) returning id
    )
    select array_agg(id) into taken from made;
    if taken is null then continue; end if;
    perform relevo.shrink_parcel(p.number, taken);
    unpacked := unpacked + cardinality(taken);
  end loop;
  return unpacked;
end $$;
