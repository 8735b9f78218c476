-- Notes that running jobs of a host (`victims`, under `claims`) make room for as many waiting ones, in the order of these, and
-- returns the victims that do. A waiting job comes first in its lane then. It asks for no other slot in the next `patience`
-- seconds, on whatever host. A job that has ended, or begun, meanwhile is left as it is.
create or replace function relevo.ask_for_room(
  p_host uuid, p_handlers text[], waiting uuid[], victims uuid[], claims bigint[], patience float8)
returns setof uuid language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  at float8 := extract(epoch from relevo.now());
  front bigint;
begin
  perform from relevo.job j where j.id = any (waiting || victims) order by j.id for update;
  select min(f.rank) into front from (
    select j.rank + case when j.priority > 4 then j.priority else 0 end as rank  -- the front of those that asked before
    from unnest(p_handlers) as h (name) cross join lateral (
      select j.rank, j.priority from relevo.job j
      where j.handler = h.name and not j.alone and j.status = 0 and not j.chained and not j.capped
      order by j.rank, j.sequence limit 1) j
    union all
    select q.rank from relevo.job_parcel q where q.host is null and q.handler = any (p_handlers)
    union all
    select j.rank from relevo.job j where j.id = any (victims)) f;
  return query
  with pairs as materialized (
    select w.id as waiting, v.id as victim, v.claim
    from unnest(waiting, victims, claims) as g (waiting, victim, claim)
    join relevo.job w on w.id = g.waiting and w.status = 0 and coalesce((w.details -> 'asks')::float8, 0) < at - patience
    join relevo.job v on v.id = g.victim and v.host = p_host and v.claim = g.claim and v.status = 20 and not v.deleted
  ), asking as (
    update relevo.job j set rank = least(j.rank, front - j.priority),  -- of several the most urgent, then the first
      details = coalesce(j.details, '{}') || jsonb_build_object('asks', at)
    from pairs p where j.id = p.waiting
  )
  update relevo.job j set details = coalesce(j.details, '{}') || jsonb_build_object('asked', p.claim)
  from pairs p where j.id = p.victim returning j.id;
end $$;
