-- name: situation
-- A job with its lane, its handler, its brake and its user, for an explanation; without its data.
select j.id, j.name, j.handler, j.lane, j.status, j.attempt, j.retries, j.crashes, j.postpone_until, j.waiting_event, j.chained,
  j.capped, j.alone, j.series, j.chain, j.token, j.owner, j.host_name, j.started_at, j.modified_at, j.completed_at, j.error_code,
  j.friendly, j.rank, j.sequence, relevo.now() as now, l.owner_cap, h.served_at, b.until as braked_until, u.name as user_name,
  (select count(*) from relevo.host x where x.ended_at is null and x.lease_until > relevo.now()) as hosts,
  case when j.capped then (
    select count(*) from relevo.job o where o.lane = j.lane and o.owner = j.owner and not o.capped and o.status <> 10) end as admitted
from relevo.jobs_by_id(array[$1::uuid]) j
join relevo.job_lane l on l.name = j.lane
left join relevo.job_handler h on h.name = j.handler
left join lateral (
  select max(x.until) as until from relevo.job_brake x where j.handler = any (x.handlers) and x.probe is distinct from j.id
) b on true
left join relevo.system_user u on u.id = j.modified_by;

-- name: servers_of
-- The live hosts that serve a handler, in which lane, and how many jobs they hold there.
select x.name as host, s.lane, s.slots, s.pool, s.limit_name, s.handlers, x.draining, coalesce((
    select count(*) from relevo.job j where j.host = s.host and j.lane = s.lane), 0) + coalesce((
    select sum(p.size - cardinality(p.done)) from relevo.job_parcel p where p.host = s.host and s.lane = any (p.lanes)), 0) as held
from relevo.job_server s join relevo.host x on x.incarnation = s.host
where x.ended_at is null and x.lease_until > relevo.now() and $1 = any (s.handlers)
order by x.name limit 1000;

-- name: jobs_ahead
-- How many claimable jobs of some handlers come before a place, at most $4.
select least($4::bigint, (
  select count(*) from (
    select from unnest($1::text[]) as h cross join lateral (
      select from relevo.job j
      where j.handler = h and j.status = 0 and not j.chained and not j.capped and not j.alone
        and (j.rank, j.sequence) < ($2::bigint, $3::bigint)
      order by j.rank, j.sequence limit $4) c
    limit $4) a
) + coalesce((
  select sum(c.jobs) from unnest($1::text[]) as h cross join lateral (
    select case when p.rank < $2 then p.size - cardinality(p.done)
      else (select count(*) from unnest(p.ids, p.sequences) as u (id, place) where u.place < $3 and u.id <> all (p.done)) end as jobs
    from relevo.job_parcel p
    where p.host is null and p.handler = h and (p.rank, p.sequence) < ($2, $3)
    order by p.rank, p.sequence limit $4) c
), 0))::bigint;

-- name: waits_of
-- What a suspended job waits for: events, or other jobs that have not ended. Some of them.
select w.event, w.key, w.child, w.deadline from relevo.job_wait w
where w.job = $1 and not w.woken and w.came_at is null and (w.child is null or relevo.is_live(w.child))
order by w.step desc, w.part limit 100;

-- name: handler_names
-- A handler by name, if a host has had it; else the names of those that hosts have had, to find similar ones.
select name from relevo.job_handler where name = $1
union all
(select name from relevo.job_handler where not exists (select from relevo.job_handler where name = $1)
 order by served_at desc limit 10000);

-- name: unserved_handlers
-- Handlers for which jobs are ready and which no live host serves, with the time when a host last did; null: never.
with recursive kinds as (
  (select handler from relevo.job where status = 0 and not chained and not capped order by handler limit 1)
  union all
  select n.handler from kinds k cross join lateral (
    select j.handler from relevo.job j
    where j.status = 0 and not j.chained and not j.capped and j.handler > k.handler order by j.handler limit 1) n
)
select k.handler, h.served_at from (
  select handler from kinds union select handler from relevo.job_parcel where host is null
) k left join relevo.job_handler h on h.name = k.handler
where not exists (
  select from relevo.job_server s join relevo.host x on x.incarnation = s.host
  where x.ended_at is null and x.lease_until > relevo.now() and k.handler = any (s.handlers))
order by k.handler limit $1;
