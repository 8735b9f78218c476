-- The jobs in all parcels, or in those with some numbers, as rows of `relevo.job`.
create or replace function relevo.jobs_in_parcels(first bigint default 0, last bigint default 9223372036854775807) returns setof relevo.job language sql stable
begin atomic
  select j.id, j.sequence, j.rank, j.version + 1, j.created_at, p.taken_at, coalesce(j.started_at, p.taken_at), j.completed_at,
    j.postpone_until, p.claim, j.run_seconds, j.attempt + 1, j.retries, j.crashes, j.operation_type, j.depth, j.error_code,
    j.progress, 20::smallint, j.priority, j.chained, j.capped, j.waiting_event, j.retain, j.auto_delete, j.system, j.hold,
    j.deleted, p.host, j.lane, j.handler, j.name, j.data, p.host_name, j.chain, j.token, j.owner, j.created_by, j.modified_by,
    j.saved, j.result, j.message, j.friendly, j.message_name, j.extension, j.regarding_type, j.regarding_id, j.correlation,
    j.correlation_at, j.request, j.series, j.pattern, j.anchor, j.zone, j.nominal, j.next_at, j.details, j.alone, j.batch, j.origin, j.attempts
  from relevo.job_parcel p cross join lateral unnest(p.jobs) as j left join lateral unnest(p.done) as d (id) on d.id = j.id
  where p.jobs is not null and p.number between first and last and d.id is null
  union all
  select u.id, u.sequence, p.rank, case when p.host is null then 1 else 2 end, p.created_at, coalesce(p.taken_at, p.created_at),
    p.taken_at, null, null, p.claim, 0, case when p.host is null then 0 else 1 end, 0, 0, p.operation_type, 1, null,
    null, (case when p.host is null then 0 else 20 end)::smallint, p.priority, false, false, false, false, not p.keeps, false, false,
    false, p.host, p.lane, p.handler, p.name, u.data, p.host_name, null, null, null, null, null,
    null, null, null, null, p.handler, p.handler, null, null, u.id,
    p.created_at, null, null, null, null, null, null, null, null, false, null, null, null
  from relevo.job_parcel p cross join lateral unnest(p.ids, p.datas, p.sequences) as u (id, data, sequence)
  where p.datas is not null and p.number between first and last and (p.done = '{}' or u.id <> all (p.done));
end;
