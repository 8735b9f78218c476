-- Submits jobs of which some are unique, by `unique` in their options. Returns the jobs that exist already, as JSON: the id
-- that was to be stored, and the id of the job that exists.
create or replace function relevo.submit_unique_jobs(
  ids uuid[], handlers text[], datas text[], names text[] default '{}', tokens text[] default '{}',
  starts timestamptz[] default '{}', lanes text[] default '{}', priorities smallint[] default '{}',
  owners uuid[] default '{}', options jsonb[] default '{}')
returns text language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  left_out uuid[];
  existing jsonb;
  stored record;
begin
  if cardinality(handlers) = 1 then handlers := array_fill(handlers[1], array[cardinality(ids)]); end if;
  select array_agg(t.id), jsonb_object_agg(t.id, t.first) into left_out, existing
  from relevo.take_unique_keys(ids, handlers, datas, options) as t;
  if left_out is null then
    perform relevo.submit_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  elsif cardinality(left_out) < cardinality(ids) then
    select array_agg(g.id order by g.n) as ids, array_agg(g.handler order by g.n) as handlers, array_agg(g.data order by g.n) as datas,
      array_agg(g.name order by g.n) as names, array_agg(g.token order by g.n) as tokens, array_agg(g.start order by g.n) as starts,
      array_agg(g.lane order by g.n) as lanes, array_agg(g.priority order by g.n) as priorities, array_agg(g.owner order by g.n) as owners,
      array_agg(g.o order by g.n) as options
    into stored
    from unnest(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options) with ordinality
      as g (id, handler, data, name, token, start, lane, priority, owner, o, n)
    where g.id <> all (left_out);
    perform relevo.submit_jobs(stored.ids, stored.handlers, stored.datas, stored.names, stored.tokens, stored.starts, stored.lanes,
      stored.priorities, stored.owners, stored.options);
  end if;
  return coalesce(existing, '{}')::text;
end $$;
