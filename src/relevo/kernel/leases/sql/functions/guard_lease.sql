-- The assertion behind every fence: ownership changes only together with a higher epoch, and epochs
-- never fall. It can only fire on a fault of Relevo.
create or replace function relevo.guard_lease() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  if new.epoch < old.epoch or (new.owner is distinct from old.owner and new.epoch = old.epoch) then
    raise exception 'lease % of unit %: owner % epoch % may not become owner % epoch %',
      old.name, old.unit_id, old.owner, old.epoch, new.owner, new.epoch;
  end if;
  return new;
end $$;
