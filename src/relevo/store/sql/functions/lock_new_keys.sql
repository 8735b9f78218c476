-- The same for who may hold the locks long: only keys that have no row.
create or replace function relevo.lock_new_keys(container integer, pks text[], ids text[], ranges integer[])
returns void language sql volatile
begin atomic
  select relevo.lock_keys(array_agg(k.pk), array_agg(k.id), array_agg(k.range_id))
  from unnest(pks, ids, ranges) as k (pk, id, range_id)
  where not exists (select from relevo.item i
                    where i.container_id = container and i.pk = k.pk and i.id = k.id);
end;
