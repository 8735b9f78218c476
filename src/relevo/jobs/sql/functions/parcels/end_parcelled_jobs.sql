-- Ends succeeded jobs in parcels of a host; returns their ids. If neither a record nor an event is written, their data is
-- not read.
create or replace function relevo.end_parcelled_jobs(
  p_host uuid, given uuid[], claims bigint[], friendlies text[], results text[], p_seconds float8[])
returns uuid[] language plpgsql volatile set enable_nestloop = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  told text[] := array(select name from relevo.job_lane l where l.events <> 'none');
  m record;  -- numbers of parcels, by what follows
  e record;
begin
  with held as materialized (
    select q.number, q.claim, q.keeps, q.jobs is null as alike, q.lanes && told as tells, q.size - cardinality(q.done) as jobs, q.ids, q.done
    from relevo.job_parcel q
    where q.host = p_host and q.claim = any (array(select distinct unnest(claims))) order by q.number for update
  ), inside as materialized (
    select h.number, h.claim, i.id from held h cross join lateral (
      select i.id from unnest(h.ids) as i (id) left join unnest(h.done) as d (id) on d.id = i.id where d.id is null) i
  ), matched as materialized (
    select i.number, g.* from inside i join unnest(given, claims, friendlies, results, p_seconds) as g (id, claim, friendly, result, seconds)
      on g.id = i.id and g.claim = i.claim
  ), counts as (
    select number, count(distinct id) as jobs from matched group by number
  )
  select array_agg(h.number) filter (where h.keeps and h.alike) as alike, array_agg(h.number) filter (where h.keeps and not h.alike) as mixed,
    array_agg(h.number) filter (where h.tells) as telling, array_agg(h.number) filter (where c.jobs = h.jobs) as whole,
    array_agg(h.number) filter (where c.jobs < h.jobs) as parts,
    (select array_agg(id) from matched) as ids, (select array_agg(friendly) from matched) as friendlies,
    (select array_agg(result) from matched) as results, (select array_agg(seconds) from matched) as seconds
  into m from held h join counts c on c.number = h.number;
  if m.alike is not null then
    insert into relevo.job_history (
      id, sequence, rank, version, created_at, modified_at, started_at, completed_at, run_seconds, attempt, operation_type, progress,
      status, priority, lane, handler, name, data, host_name, result, friendly, message_name, extension, correlation, correlation_at)
    select u.id, u.sequence, q.rank, 3, q.created_at, at, q.taken_at, at, coalesce(g.seconds, 0), 1, q.operation_type, 1,
      30, q.priority, q.lane, q.handler, q.name, u.data, q.host_name, g.result, g.friendly, q.handler, q.handler, u.id, q.created_at
    from relevo.job_parcel q cross join lateral unnest(q.ids, q.datas, q.sequences) as u (id, data, sequence)
    join unnest(m.ids, m.friendlies, m.results, m.seconds) as g (id, friendly, result, seconds) on g.id = u.id
    where q.number = any (m.alike);
  end if;
  if m.mixed is not null then
    insert into relevo.job_history (
      id, sequence, rank, version, created_at, modified_at, started_at, completed_at, postpone_until, run_seconds,
      attempt, retries, crashes, operation_type, depth, progress, status, priority, retain, auto_delete, hold, lane,
      handler, name, data, host_name, token, owner, created_by, modified_by, result, friendly, message_name,
      extension, regarding_type, regarding_id, correlation, correlation_at, request, origin)
    select j.id, j.sequence, j.rank, j.version + 2, j.created_at, at, coalesce(j.started_at, q.taken_at), at, j.postpone_until,
      j.run_seconds + coalesce(g.seconds, 0), j.attempt + 1, j.retries, j.crashes, j.operation_type, j.depth, 1, 30, j.priority,
      j.retain, j.auto_delete, j.hold, j.lane, j.handler, j.name, j.data, q.host_name, j.token, j.owner, j.created_by,
      j.modified_by, g.result, coalesce(g.friendly, j.friendly), j.message_name, j.extension, j.regarding_type, j.regarding_id,
      j.correlation, j.correlation_at, j.request, j.origin
    from relevo.job_parcel q cross join lateral unnest(q.jobs) as j
    join unnest(m.ids, m.friendlies, m.results, m.seconds) as g (id, friendly, result, seconds) on g.id = j.id
    where q.number = any (m.mixed) and (j.retain or not j.auto_delete);
  end if;
  if m.telling is not null then
    select array_agg(j.id) as ids, array_agg(j.version + 1) as versions, array_agg(j.name) as names, array_agg(j.lane) as lanes,
      array_agg(j.operation_type) as types, array_agg(j.attempt) as attempts, array_agg(j.host_name) as hosts,
      array_agg(j.error_code) as errors, array_agg(j.created_at) as created, array_agg(j.started_at) as started
    into e from unnest(m.telling) as n cross join lateral relevo.jobs_in_parcels(n, n) as j
    join unnest(m.ids) as g (id) on g.id = j.id where j.lane = any (told);
    perform relevo.announce_jobs(e.ids, e.versions, array_fill('succeeded'::text, array[cardinality(e.ids)]),
      array_fill(20::smallint, array[cardinality(e.ids)]), array_fill(30::smallint, array[cardinality(e.ids)]),
      e.names, e.lanes, e.types, e.attempts, e.hosts, e.errors, e.created, e.started)
    where e.ids is not null;
  end if;
  if m.whole is not null then
    delete from relevo.job_parcel q where q.number = any (m.whole);
  end if;
  if m.parts is not null then
    update relevo.job_parcel q set done = q.done || array(
      select i.id from unnest(q.ids) as i (id) join unnest(m.ids) as g (id) on g.id = i.id)
    where q.number = any (m.parts);
  end if;
  return coalesce(m.ids, '{}');
end $$;
