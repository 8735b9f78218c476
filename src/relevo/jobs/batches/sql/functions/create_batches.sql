-- Makes batches, one element of each array for each; runs as the schema's owner, for callers' own transactions.
create or replace function relevo.create_batches(
  ids uuid[], names text[], owners uuid[], handlers text[], datas text[], conditions text[])
returns integer language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  insert into relevo.job_batch (id, name, owner, created_at, handler, data, condition)
  select g.id, g.name, g.owner, relevo.now(), g.handler, g.data, coalesce(g.condition, 'ended')
  from unnest(ids, names, owners, handlers, datas, conditions) as g (id, name, owner, handler, data, condition);
  perform relevo.announce_batches(ids, 'created');
  return cardinality(ids);
end $$;
