-- name: read_jobs
-- Jobs by id, whatever their state.
select * from relevo.jobs_by_id($1::uuid[]);

-- name: read_job_page
-- Jobs by id in a given order, with or without their data, up to a number of bytes (PostgreSQL knows the length of a text
-- without reading it). `followed` is whether more follow.
select j.* from (
  select j.*, coalesce(sum(coalesce(octet_length(j.data), 0) + coalesce(octet_length(j.saved), 0)
    + coalesce(octet_length(j.result), 0) + coalesce(octet_length(j.attempts::text), 0) + coalesce(octet_length(j.message), 0) + coalesce(octet_length(j.friendly), 0)) over before, 0)
    as bytes_before, lead(true) over before as followed
  from (
    select w.place, j.id, j.name, j.handler, j.lane, j.status, j.sequence, j.version, j.operation_type, j.priority, j.token, j.owner,
      j.created_at, j.modified_at, j.started_at, j.completed_at, j.postpone_until, j.attempt, j.retries, j.crashes, j.run_seconds,
      j.progress, j.error_code, j.friendly, j.host_name, j.series, j.pattern, j.chained, j.batch, j.origin, case when $2 then j.message end as message,
      case when $2 then j.data end as data, case when $2 then j.saved end as saved, case when $2 then j.result end as result,
      case when $2 then j.attempts end as attempts
    from unnest($1::uuid[]) with ordinality as w (id, place) join relevo.jobs_by_id($1::uuid[]) j on j.id = w.id
  ) j
  window before as (order by j.place rows between unbounded preceding and 1 preceding)
) j
where j.bytes_before < $3::bigint order by j.place;

-- name: awaited
-- Unfinished jobs by id, and whether success leaves no record of them.
select id, auto_delete and not retain as brief from relevo.jobs_by_id($1::uuid[]) where status < 30;

-- name: ends
-- Which of some jobs have ended or are gone, and why; not jobs whose transaction is under way. A job without a record and
-- without `gone` has succeeded: it existed (`brief`, `handler`), and success leaves no record of it.
select w.id, h.status, h.result, h.error_code, h.friendly, h.message,
  case
    when h.id is not null then null
    when exists (select from relevo.job j where j.id = w.id) then 'deleted'  -- its handler is still to stop
    when pg_xact_status(split_part(w.tx, ' ', 2)::xid8) = 'aborted' then 'undone'
    when coalesce(w.brief, d.auto_delete) then null
    when coalesce(w.brief::text, w.handler) is not null then 'deleted'
    else 'missing'
  end as gone
from unnest($1::uuid[], $2::boolean[], $3::text[], $4::text[]) as w (id, brief, handler, tx)
left join relevo.job_history h on h.id = w.id
left join relevo.job_handler d on d.name = w.handler
where not relevo.is_live(w.id) and (w.tx is null
  or pg_visible_in_snapshot(split_part(w.tx, ' ', 1)::xid8, pg_current_snapshot()));
