-- Records that jobs have left a parcel, whose row is locked; deletes an empty one.
create or replace function relevo.shrink_parcel(p_number bigint, gone uuid[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  delete from relevo.job_parcel p where p.number = p_number and cardinality(p.done) + cardinality(gone) >= p.size;
  if not found then
    update relevo.job_parcel p set done = p.done || gone where p.number = p_number;
  end if;
end $$;
