-- Locks items of one partition key in order and returns them, expired ones too; waits for
-- other transactions. A row that was deleted and made again meanwhile is another one, so it looks
-- again until every row that it can see is locked.
create or replace function relevo.lock_items(container integer, key text, ids text[])
returns setof relevo.item language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  held relevo.item[];
begin
  loop
    select array_agg(l) into held from (
      select i from relevo.item i /* a deadlock here: write shared items in one order */
      where i.container_id = container and i.pk = key and i.id = any (lock_items.ids)
      order by i.id for update) as l (l);
    exit when coalesce(cardinality(held), 0) = (
      select count(*) from relevo.item i
      where i.container_id = container and i.pk = key and i.id = any (lock_items.ids));
  end loop;
  return query select * from unnest(held);
end $$;
