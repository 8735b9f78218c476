-- Returns the calls that create a key that another transaction is creating, too. Such a key has no visible
-- row, so only an insert can find out; each try is undone. A stamp lock is held, so waiting tries are short
-- and few: after the last one, the remaining calls are returned as untried.
create or replace function relevo.contested_calls(
  container integer, calls integer[], kinds text[], pks text[], ids text[],
  out contested integer[], out untried integer[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '2ms' as $$
declare
  given record;
begin
  contested := '{}';
  untried := '{}';
  for given in
    select g.call, g.pk, g.id from unnest(calls, kinds, pks, ids) as g (call, kind, pk, id)
    where g.kind in ('create', 'upsert') and not exists (
      select from relevo.item i where i.container_id = container and i.pk = g.pk and i.id = g.id)
  loop
    continue when given.call = any (contested || untried);
    if cardinality(contested) = 20 then
      untried := untried || given.call;
      continue;
    end if;
    begin
      insert into relevo.item (container_id, range_id, ordinal, lsn, ts, pk, id, epk, body)
      values (container, 0, 0, 0, '-infinity', given.pk, given.id, '', 'null');
      raise exception using errcode = 'RV003';
    exception
      when sqlstate 'RV003' then null;
      when lock_not_available then contested := contested || given.call;
    end;
  end loop;
end $$;
