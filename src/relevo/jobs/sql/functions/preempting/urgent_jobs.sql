-- Ready jobs of some handlers with a priority above the usual one, the most urgent first. If there are few, the first jobs of
-- waiting parcels become rows, so that they can be marked.
create or replace function relevo.urgent_jobs(p_handlers text[], amount integer)
returns table (id uuid, priority smallint) language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  open_handlers text[] := array(
    select h.name from unnest(p_handlers) as h (name)
    where not exists (select from relevo.job_brake b where h.name = any (b.handlers)));
  missing integer := amount - (
    select count(*) from unnest(open_handlers) as h (name) cross join lateral (
      select from relevo.job j
      where j.handler = h.name and j.status = 0 and not j.chained and not j.capped and not j.alone and j.priority > 4
      limit amount) j);
  parcelled uuid[];
begin
  if missing > 0 then
    parcelled := array(
      select i.id from relevo.job_parcel q cross join lateral (
        select i.id, i.nth from unnest(q.ids) with ordinality as i (id, nth) where i.id <> all (q.done) order by i.nth limit missing) i
      where q.host is null and q.handler = any (open_handlers) and q.priority > 4
      order by q.priority desc, q.rank, i.nth limit missing);
    if cardinality(parcelled) > 0 then perform relevo.unpack_jobs(parcelled); end if;
  end if;
  return query
  select j.id, j.priority
  from unnest(open_handlers) as h (name) cross join lateral (
    select j.id, j.priority, j.rank, j.sequence from relevo.job j
    where j.handler = h.name and j.status = 0 and not j.chained and not j.capped and not j.alone and j.priority > 4
    order by j.priority desc, j.rank, j.sequence limit amount) j
  order by j.priority desc, j.rank, j.sequence limit amount;
end $$;
