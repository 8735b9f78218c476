-- Answers the fences that are stale; the others are good until the transaction ends,
-- since a take-over needs the exclusive form of the lock. Two statements on purpose: what is read
-- after the lock must be younger than the lock. Above READ COMMITTED the snapshot is older, so the
-- rows are locked instead, which fails with a serialisation error if one has moved.
create or replace function relevo.stale_fences(ids integer[], epochs bigint[])
returns table (stale_id integer, stale_epoch bigint) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock_shared(1380273155, s.id) from (select unnest(ids) as id order by 1) s;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from relevo.lease where id = any (ids) order by id for share;
  end if;
  return query
    select f.id, f.epoch from unnest(ids, epochs) as f (id, epoch)
    where not exists (
      select from relevo.lease l join relevo.host h on h.incarnation = l.owner
      where l.id = f.id and l.epoch = f.epoch
        and h.ended_at is null and h.lease_until > relevo.now());
end $$;
