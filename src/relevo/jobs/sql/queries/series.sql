-- name: late_series
-- Whether a row of a series has been ready for a while; see `ready_series`.
select exists (
  select from relevo.job j where j.series is not null and j.status = 0 and j.attempt = 0 and j.postpone_until is not null
    and greatest(j.nominal, j.postpone_until) < relevo.now() - interval '2 s') as late;

-- name: due_series
-- Due rows of series; their next instant is computed before they become ready.
-- `caught_up` is when the claim of the former run created the row: instants due by then are not missed.
select j.id, j.series, j.pattern, j.anchor, j.zone, j.nominal, j.postpone_until, j.details, j.token, relevo.now() as now,
  case when j.id <> j.series then j.created_at end as caught_up, exists (select from relevo.job r where r.series = j.series and r.attempt > 0) as running
from relevo.job j
where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event and j.series is not null and j.attempt = 0
order by j.postpone_until limit $1 for update skip locked;

-- name: start_series_rows
-- Makes rows of series ready, or prepares them: they join the end of their chain, which is that of their token or, if runs
-- must not overlap, that of the series.
with turned as (
  update relevo.job j set status = $8, sequence = nextval('relevo.job_sequence'), rank = relevo.job_rank(relevo.now(), l.priority, j.priority),
    next_at = s.next_at, nominal = s.nominal, chain = c.chain, chained = c.chain is not null, friendly = coalesce(s.late, j.friendly),
    capped = l.owner_cap is not null and j.owner is not null,
    details = j.details || jsonb_build_object('ordinal', s.ordinal, 'next_ordinal', s.next_ordinal),
    version = j.version + 1, modified_at = relevo.now()
  from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::boolean[], $5::text[], $6::integer[], $7::integer[])
      as s (id, nominal, next_at, queued, late, ordinal, next_ordinal)
    join relevo.job w on w.id = s.id
    join relevo.job_lane l on l.name = w.lane
    cross join lateral (select coalesce(
      relevo.job_chain(w.token, w.owner, l.shared_tokens), case when s.queued then 's' || w.series end) as chain) c
  where j.id = s.id and j.status = 10
  returning j.chain, j.capped, j.lane, j.owner
)
insert into relevo.job_gate (key)
select 'c' || chain from turned where chain is not null
union all
select relevo.job_owner_key(lane, owner) from turned where capped;

-- name: skip_series_rows
-- Moves waiting rows of series to a later instant.
update relevo.job j set postpone_until = s.at, nominal = s.at, version = j.version + 1, modified_at = relevo.now(),
  details = j.details || jsonb_build_object('ordinal', s.ordinal)
from unnest($1::uuid[], $2::timestamptz[], $3::integer[]) as s (id, at, ordinal) where j.id = s.id and j.status = 10;

-- name: ready_series
-- Rows of series that have been ready for a while and do not run, in pages; without resumed rows, which are not late.
select j.id, j.series, j.details, relevo.now() as now, greatest(j.nominal, j.postpone_until) as since
from relevo.job j
where j.series > $1 and j.status = 0 and j.attempt = 0 and j.postpone_until is not null
  and greatest(j.nominal, j.postpone_until) < relevo.now() - interval '2 s'
order by j.series limit $2;

-- name: mark_late
-- Notes how late rows of series are, unless they have started meanwhile.
with free as (
  select id from relevo.job where id = any ($1::uuid[]) and status = 0 and attempt = 0 order by id for update skip locked
)
update relevo.job j set friendly = s.friendly
from free f join unnest($1::uuid[], $2::text[]) as s (id, friendly) on s.id = f.id
where j.id = f.id and j.friendly is distinct from s.friendly;

-- name: end_series
-- Removes waiting rows of series that have no further instant, and writes events.
with gone as (
  delete from relevo.job where id = any ($1::uuid[]) and status = 10 and attempt = 0 returning series
)
select array_agg(series) from gone;

-- name: announce_series_ends
-- Writes events for series that have ended.
select relevo.announce_series_ends($1::uuid[]);
