-- Takes the keys of unique jobs that are about to be stored. Returns those that exist already: the id that was to be stored,
-- and the job that has its key. Two submits of one key wait for each other: the insert locks the key, and the statement
-- after it sees what the other has committed. Keys are locked in one order.
create or replace function relevo.take_unique_keys(ids uuid[], handlers text[], datas text[], options jsonb[])
returns table (id uuid, first uuid) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  keys bytea[];
begin
  keys := array(
    select case when jsonb_typeof(g.o -> 'unique') in ('object', 'boolean') then relevo.unique_job_key(g.handler, g.data, g.o -> 'unique') end
    from unnest(ids, handlers, datas, options) with ordinality as g (id, handler, data, o, n) order by g.n);
  insert into relevo.job_unique (key, job, since)
  select distinct on (k.key) k.key, i.id, at
  from unnest(keys) with ordinality as k (key, n) join unnest(ids) with ordinality as i (id, n) on i.n = k.n
  where k.key is not null order by k.key, k.n
  on conflict (key) do update set until = relevo.job_unique.until;
  return query
  with asked as materialized (
    select k.key, i.id, k.n, (o.o #>> '{unique,window}')::float8 as seconds, relevo.unique_statuses(o.o -> 'unique') as statuses,
      row_number() over (partition by k.key order by k.n) = 1 as leads
    from unnest(keys) with ordinality as k (key, n) join unnest(ids) with ordinality as i (id, n) on i.n = k.n
    join unnest(options) with ordinality as o (o, n) on o.n = k.n
    where k.key is not null
  ), holders as materialized (
    select u.key, u.job, u.since from relevo.job_unique u where u.key = any (keys)
  ), statuses as materialized (
    select j.id, j.status from relevo.jobs_by_id(array(select h.job from holders h)) as j
  ), judged as materialized (
    select a.*, h.job, h.job <> a.id and (a.seconds is null or h.since > at - make_interval(secs => a.seconds))
        -- The record of a success may be removed.
        and coalesce(s.status, case when a.seconds is not null then 30 end) = any (a.statuses) as held
    from asked a join holders h on h.key = a.key left join statuses s on s.id = h.job
    where a.leads
  ), taken as (
    update relevo.job_unique u set job = case when j.held then u.job else j.id end, since = case when j.held then u.since else at end,
      until = case when j.held then greatest(u.until, u.since + make_interval(secs => j.seconds)) else at + make_interval(secs => j.seconds) end
    from judged j where u.key = j.key
  )
  select a.id, case when j.held then j.job else j.id end
  from asked a join judged j on j.key = a.key where j.held or not a.leads;
end $$;
