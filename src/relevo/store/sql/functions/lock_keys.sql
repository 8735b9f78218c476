-- Keys are locked by their hash, 64 locks per range, since a new key has no row to lock and a row that
-- is deleted and made again is another one to who waited for it. Own writers of one range wait for each
-- other anyway, and the number of locks stays small however many keys a group brings.
create or replace function relevo.lock_keys(pks text[], ids text[], ranges integer[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare number integer;
begin
  for number in
    select distinct k.range_id * 64 + (hashtext(k.pk || k.id) & 63)
    from unnest(pks, ids, ranges) as k (pk, id, range_id) order by 1
  loop
    perform pg_advisory_xact_lock(1380273157, number);
  end loop;
end $$;
