-- description: plain jobs that are submitted by the hundred wait in parcels and are claimed as such; each costs a few bytes more than its data
-- locks: relevo.job_parcel while its few rows get their keys

drop function relevo.shrink_parcel;

-- What a host is told of jobs, as by `relevo.job_work` (0018), which hosts of the version before still get from
-- `relevo.work_jobs`: they claim rows alone. `parcel` brings jobs that have all but key and data in common, which are arrays.
create type relevo.job_notice as (
  kind text, id uuid, status smallint, claim bigint, lane text, handler text, name text, data text, attempt integer,
  operation_type integer, created float8, particulars text, ids uuid[], datas text[]);

create type relevo.id_range as range (subtype = uuid);

create function relevo.id_span(ids uuid[]) returns relevo.id_range language sql immutable
return relevo.id_range((select i from unnest(ids) as i order by i limit 1), (select i from unnest(ids) as i order by i desc limit 1), '[]');

-- How many jobs a parcel has that waits: a host that wants fewer makes rows of all of them.
create function relevo.parcel_max() returns integer language sql immutable return 250;

-- A parcel has a host, or it waits in its lane. One that was submitted has `datas`, and all else in common;
-- one that was put together at a claim has `jobs`. Lock order: parcels by number, then rows of jobs by id.
alter table relevo.job_parcel
  drop constraint job_parcel_pkey,
  alter host drop not null, alter claim drop not null, alter host_name drop not null, alter taken_at drop not null,
  alter jobs drop not null,
  add column number bigint generated always as identity primary key,
  add column lane text collate "C", add column handler text collate "C", add column name text,
  add column operation_type integer, add column priority smallint, add column rank bigint, add column sequence bigint,
  add column created_at timestamptz,
  add column sequences bigint[], add column datas text[],
  add column span relevo.id_range not null generated always as (relevo.id_span(ids)) stored,
  add constraint job_parcel_held check ((host is null) = (claim is null) and (host is not null or datas is not null)),
  add constraint job_parcel_kind check ((datas is null) = (jobs is not null) and (datas is null) = (lane is null));
alter table relevo.job_parcel alter datas set storage external, alter sequences set storage external;
comment on column relevo.job_parcel.sequence is 'that of the first';
comment on column relevo.job_parcel.span is 'from the least to the greatest key: where to look for a job';
create index job_parcel_hosts on relevo.job_parcel (host, claim) where host is not null;
create index job_parcel_claims on relevo.job_parcel (lane, handler, rank, sequence) where host is null;
create index job_parcel_spans on relevo.job_parcel using gist (span);

-- The jobs of all parcels, or those with some numbers, that are still in them: as the rows that they would be.
create function relevo.jobs_in_parcels(first bigint default 0, last bigint default 9223372036854775807) returns setof relevo.job language sql stable
begin atomic
  select j.id, j.sequence, j.rank, j.version + 1, j.created_at, p.taken_at, coalesce(j.started_at, p.taken_at), j.completed_at,
    j.postpone_until, p.claim, j.run_seconds, j.attempt + 1, j.retries, j.crashes, j.operation_type, j.depth, j.error_code,
    j.progress, 20::smallint, j.priority, j.chained, j.capped, j.waiting_event, j.retain, j.auto_delete, j.system, j.hold,
    j.deleted, p.host, j.lane, j.handler, j.name, j.data, p.host_name, j.chain, j.token, j.owner, j.created_by, j.modified_by,
    j.saved, j.result, j.message, j.friendly, j.message_name, j.extension, j.regarding_type, j.regarding_id, j.correlation,
    j.correlation_at, j.request, j.series, j.pattern, j.anchor, j.zone, j.nominal, j.next_at, j.details
  from relevo.job_parcel p cross join lateral unnest(p.jobs) as j left join lateral unnest(p.done) as d (id) on d.id = j.id
  where p.jobs is not null and p.number between first and last and d.id is null
  union all
  select u.id, u.sequence, p.rank, case when p.host is null then 1 else 2 end, p.created_at, coalesce(p.taken_at, p.created_at),
    p.taken_at, null, null, p.claim, 0, case when p.host is null then 0 else 1 end, 0, 0, p.operation_type, 1, null,
    null, (case when p.host is null then 0 else 20 end)::smallint, p.priority, false, false, false, false, not p.keeps, false, false,
    false, p.host, p.lane, p.handler, p.name, u.data, p.host_name, null, null, null, null, null,
    null, null, null, null, p.handler, p.handler, null, null, u.id,
    p.created_at, null, null, null, null, null, null, null, null
  from relevo.job_parcel p cross join lateral unnest(p.ids, p.datas, p.sequences) as u (id, data, sequence)
  where p.datas is not null and p.number between first and last and (p.done = '{}' or u.id <> all (p.done));
end;

create or replace view relevo.live_job as
  select * from relevo.job where not deleted
  union all
  select * from relevo.jobs_in_parcels();
drop function relevo.parcelled_jobs;

-- Which parcels may have some of these jobs.
create function relevo.parcels_spanning(wanted uuid[]) returns bigint[] language sql stable
set enable_seqscan = off
return array(select distinct p.number from unnest(wanted) as w (id) join relevo.job_parcel p on p.span @> w.id);

-- Jobs by id, whatever their state. (The view `relevo.jobs` would look into every parcel.)
create function relevo.jobs_by_id(wanted uuid[]) returns setof relevo.job language sql stable
begin atomic
  select * from relevo.job j where j.id = any (wanted) and not j.deleted
  union all
  select j.* from unnest(relevo.parcels_spanning(wanted)) as n cross join lateral relevo.jobs_in_parcels(n, n) as j where j.id = any (wanted)
  union all
  select * from relevo.job_history h where h.id = any (wanted);
end;

create or replace function relevo.is_parcelled(job uuid) returns boolean language sql stable
return exists (select from relevo.job_parcel p where p.span @> job and job = any (p.ids) and not (job = any (p.done)));

-- Takes jobs out of parcels: they are rows again, ready, or held by the same host under the same claim. Answers how many were.
create or replace function relevo.unpack_jobs(wanted uuid[]) returns integer language plpgsql volatile as $$
declare
  near bigint[];
  p record;
  taken uuid[];
  unpacked integer := 0;
begin
  if not exists (select from relevo.job_parcel) then return 0; end if;
  near := relevo.parcels_spanning(wanted);
  for p in
    select q.number from relevo.job_parcel q
    where q.number = any (near) and exists (
      select from unnest(q.ids) as i (id) join unnest(wanted) as w (id) on w.id = i.id
      left join unnest(q.done) as d (id) on d.id = i.id where d.id is null)
    order by q.number for update
  loop
    with made as (
      insert into relevo.job select * from relevo.jobs_in_parcels(p.number, p.number) as j where j.id = any (wanted) returning id
    )
    select array_agg(id) into taken from made;
    if taken is null then continue; end if;
    perform relevo.shrink_parcel(p.number, taken);
    unpacked := unpacked + cardinality(taken);
  end loop;
  return unpacked;
end $$;

-- Notes that jobs are no longer in a parcel, whose row is locked; an empty one goes.
create function relevo.shrink_parcel(p_number bigint, gone uuid[]) returns void language plpgsql volatile as $$
begin
  delete from relevo.job_parcel p where p.number = p_number and cardinality(p.done) + cardinality(gone) >= p.size;
  if not found then
    update relevo.job_parcel p set done = p.done || gone where p.number = p_number;
  end if;
end $$;

create or replace function relevo.unpack_parcels(p_host uuid, claims bigint[] default null) returns void language plpgsql volatile as $$
begin
  perform relevo.unpack_jobs(p.ids) from relevo.job_parcel p
  where p.host = p_host and (claims is null or p.claim = any (claims)) order by p.number;
end $$;

-- Makes rows of about so many jobs of some handlers that wait in parcels: something is to happen to each of them.
create function relevo.unpack_ready(p_handlers text[], amount integer) returns void language plpgsql volatile as $$
begin
  perform relevo.unpack_jobs(p.ids) from (
    select q.ids from relevo.job_parcel q where q.host is null and q.handler = any (p_handlers)
    order by q.number limit amount / relevo.parcel_max() + 1
  ) p;
end $$;

-- As before (0018).
create or replace function relevo.recover_jobs(amount integer, crashes_max integer) returns integer language plpgsql volatile as $$
declare
  p record;
  unpacked boolean := false;
begin
  for p in
    select q.host, q.claim from relevo.job_parcel q
    where q.host is not null and not exists (select from relevo.host x where x.incarnation = q.host and x.ended_at is null)
    order by q.number limit 10
  loop
    perform relevo.unpack_parcels(p.host, array[p.claim]);
    unpacked := true;
  end loop;
  return case when unpacked then -1 else relevo.recover_job_rows(amount, crashes_max) end;
end $$;

-- As before (0014); what waits in parcels is made rows.
alter function relevo.brake_jobs rename to brake_job_rows;
create function relevo.brake_jobs(amount integer) returns integer language plpgsql volatile as $$
begin
  if exists (select from relevo.job_parcel p where p.host is null) then
    perform relevo.unpack_ready(array(select distinct h from relevo.job_brake b cross join unnest(b.handlers) as h), amount);
  end if;
  return relevo.brake_job_rows(amount);
end $$;

-- Makes rows of about so many jobs that wait in parcels, of handlers that nobody has served for so long.
create function relevo.unpack_unserved(patience interval, amount integer) returns void language sql volatile
begin atomic
  select relevo.unpack_ready(array(
    select distinct p.handler from relevo.job_parcel p
    where exists (select from relevo.host h where h.ended_at is null and h.started_at < relevo.now() - patience)
      and p.host is null and p.created_at < relevo.now() - patience and not exists (
      select from relevo.job_handler h where h.name = p.handler and h.lane = p.lane and h.served_at >= relevo.now() - patience)), amount);
end;

-- Ends jobs of parcels that succeeded, in the name of their host; answers which. Where no record is kept and nothing is
-- told, not even their data is read.
create or replace function relevo.end_parcelled_jobs(
  p_host uuid, given uuid[], claims bigint[], friendlies text[], results text[], p_seconds float8[])
returns uuid[] language plpgsql volatile set enable_nestloop = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  told text[] := array(select name from relevo.job_lane l where l.events <> 'none');
  m record;  -- numbers of parcels, by what is to be done
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
      extension, regarding_type, regarding_id, correlation, correlation_at, request)
    select j.id, j.sequence, j.rank, j.version + 2, j.created_at, at, coalesce(j.started_at, q.taken_at), at, j.postpone_until,
      j.run_seconds + coalesce(g.seconds, 0), j.attempt + 1, j.retries, j.crashes, j.operation_type, j.depth, 1, 30, j.priority,
      j.retain, j.auto_delete, j.hold, j.lane, j.handler, j.name, j.data, q.host_name, j.token, j.owner, j.created_by,
      j.modified_by, g.result, coalesce(g.friendly, j.friendly), j.message_name, j.extension, j.regarding_type, j.regarding_id,
      j.correlation, j.correlation_at, j.request
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

-- Chooses parcels that wait in a lane, as long as no row comes before them and they fit. If one does not fit, or lacks
-- jobs that may come back between the others, or jobs are wanted singly, it becomes rows, unless half of the room is used already.
-- `rows_first` is false if the rows before them are locked. Answers also the room that is left, and the parcel before which rows may take it.
create function relevo.choose_parcels(
  p_lane text, inout room integer, wanted integer, p_handlers text[], singly boolean, rows_first boolean,
  out chosen bigint[], out next_rank bigint, out next_sequence bigint)
language plpgsql volatile set enable_seqscan = off as $$
declare
  free text[] := array(  -- of the others each is a row
    select h from unnest(p_handlers) as h
    where not exists (select from relevo.job_brake b where h = any (b.handlers) and p_lane = any (b.lanes)));
  first record;  -- of the rows
  last_rank bigint := -9223372036854775808;
  last_sequence bigint := 0;
  p record;
  locked record;
  fits boolean;
begin
  chosen := '{}';
  singly := singly or exists (select from relevo.job_lane l where l.name = p_lane and (l.told > 1 or l.owner_cap is not null));
  select j.rank, j.sequence into first from (
    select r.rank, r.sequence from unnest(free) as h cross join lateral (
      select * from relevo.job r where r.lane = p_lane and r.handler = h and r.status = 0 and not r.chained and not r.capped
      order by r.rank, r.sequence limit 1) r
    union all
    select r.rank, r.sequence from relevo.job_brake b join relevo.job r on r.id = b.probe
    where r.lane = p_lane and r.handler = any (p_handlers) and r.status = 0 and not r.chained and not r.capped
  ) j order by j.rank, j.sequence limit 1;
  loop
    select w.* into p from unnest(free) as h cross join lateral (
      select x.number, x.rank, x.sequence, x.size, x.done = '{}' as intact from relevo.job_parcel x
      where x.host is null and x.lane = p_lane and x.handler = h and (x.rank, x.sequence) > (last_rank, last_sequence)
      order by x.rank, x.sequence limit 1
    ) w order by w.rank, w.sequence limit 1;
    exit when p.number is null;
    if rows_first and (first.rank, first.sequence) < (p.rank, p.sequence) then exit; end if;
    fits := not singly and p.intact and p.size between relevo.parcel_min() and room;
    if not fits and 2 * room <= wanted then exit; end if;
    last_rank := p.rank;
    last_sequence := p.sequence;
    select q.ids, q.done = '{}' as intact into locked from relevo.job_parcel q
    where q.number = p.number and q.host is null for update skip locked;
    if locked.ids is null then
      null;  -- another has it
    elsif fits and locked.intact then
      chosen := chosen || p.number;
      room := room - p.size;
    else
      perform relevo.unpack_jobs(locked.ids);
      first := p;
      rows_first := true;  -- these are free
    end if;
  end loop;
  next_rank := p.rank;
  next_sequence := p.sequence;
end $$;

-- Claims jobs lane by lane: of every handler that the host has, the first; the claim takes what it reads.
-- A claimed row of a series leaves the next one waiting. The order of the answer is that of the claims.
-- Where a host was lost with one of them, no more are claimed than can begin at once (`slots`, by lane): if one of
-- them brings hosts down, few others are with it, and it is soon known. Many plain ones leave as a parcel,
-- unless they are wanted `singly`. By lane, those from `next_ranks` and `next_sequences` on come after a parcel that waits.
-- With a `turn` it is one of several statements of a claim: what follows from them all is left to the caller.
create function relevo.claim_job_rows(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[], slots integer[],
  singly boolean, next_ranks bigint[] default '{}', next_sequences bigint[] default '{}', turn integer default 0)
returns setof relevo.job_notice language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  places tid[];
  recurs boolean;
  suspected boolean;
  plain boolean;  -- all of them: nothing follows from their success but a record and an event
  own boolean;  -- any of them is the platform's
  keeps boolean;
  taken relevo.job[];
begin
  with served as materialized (
    select h.lane, h.handler, l.room, l.next_rank, l.next_sequence, count(*) over (partition by h.lane) as siblings,
      b.extension is not null as braked, b.probe
    from unnest(lanes, rooms, next_ranks, next_sequences) as l (lane, room, next_rank, next_sequence)
    join unnest(handler_lanes, handlers) as h (lane, handler) on h.lane = l.lane
    left join relevo.job_brake b on h.handler = any (b.handlers) and h.lane = any (b.lanes)
    where l.room > 0
  ), wanted as materialized (
    select lane, handler, room as amount, braked, probe, next_rank, next_sequence from served where siblings = 1
    union all
    select lane, handler, count(*), braked, probe, next_rank, next_sequence from (
      select s.lane, s.handler, s.room, s.braked, s.probe, s.next_rank, s.next_sequence, row_number() over (partition by s.lane order by c.rank, c.sequence) as nth
      from served s cross join lateral (
        select j.rank, j.sequence from relevo.job j
        where j.lane = s.lane and j.handler = s.handler and j.status = 0 and not j.chained and not j.capped
          and (not s.braked or j.id = s.probe) and (s.next_rank is null or (j.rank, j.sequence) < (s.next_rank, s.next_sequence))
        order by j.rank, j.sequence limit s.room
      ) c where s.siblings > 1
    ) n where n.nth <= n.room group by lane, handler, braked, probe, next_rank, next_sequence
  )
  select array_agg(c.place order by c.rank, c.sequence), bool_or(c.recurs), bool_or(c.crashes > 0), bool_and(c.plain and not w.braked), bool_or(c.keeps), bool_or(c.system)
  into places, recurs, suspected, plain, keeps, own
  from wanted w cross join lateral (
    select j.ctid as place, j.rank, j.sequence, j.series is not null as recurs, j.crashes, j.system, j.retain or not j.auto_delete as keeps,
      j.attempt = 0 and j.operation_type in (1, 54) and not j.system and pg_column_size(j.data) <= 2000
        and j.chain is null and j.series is null and j.details is null as plain
    from relevo.job j
    where j.lane = w.lane and j.handler = w.handler and j.status = 0 and not j.chained and not j.capped
      and (not w.braked or j.id = w.probe) and (w.next_rank is null or (j.rank, j.sequence) < (w.next_rank, w.next_sequence))
    order by j.rank, j.sequence limit w.amount
    for update skip locked
  ) c;
  if suspected and turn > 1 then return; end if;
  if suspected then
    select array_agg(c.place order by c.nth) into places
    from (
      select p.place, j.lane, row_number() over (partition by j.lane order by p.nth) as nth
      from unnest(places) with ordinality as p (place, nth) join relevo.job j on j.ctid = p.place
    ) c join unnest(lanes, slots) as l (lane, slots) on l.lane = c.lane and c.nth <= coalesce(l.slots, c.nth);
  end if;
  if places is null then return; end if;
  if plain and not singly and cardinality(places) >= relevo.parcel_min() and not exists (
    select from relevo.job_lane l where l.name = any (lanes) and (l.told > 1 or l.owner_cap is not null)
  ) then
    with gone as (
      delete from relevo.job j using unnest(places) as p (place) where j.ctid = p.place returning j as job  -- in this order
    )
    select array_agg(g.job) into taken from gone g;
    insert into relevo.job_parcel (host, claim, host_name, taken_at, size, keeps, lanes, ids, jobs)
    select p_host, p_claim, p_name, at, cardinality(taken), keeps, lanes, array(select j.id from unnest(taken) as j), taken;
    return query
    select 'claimed', j.id, null::smallint, p_claim, j.lane, j.handler, j.name, j.data, 1, j.operation_type,
      date_part('epoch', j.created_at),
      case when j.owner is null and j.token is null and j.regarding_id is null and j.regarding_type is null and j.depth = 1
             and j.correlation = j.id
           then null else relevo.job_particulars(j) end, null::uuid[], null::text[]
    from unnest(taken) as j;
    return;
  end if;
  return query
  update relevo.job j set
    status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1,
    started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1,
    friendly = case when j.attempt = 0 then j.friendly end  -- what a former run failed with is not of this one
  from unnest(places) as p (place) where j.ctid = p.place  -- in this order
  returning 'claimed', j.id, null::smallint, j.claim, j.lane, j.handler, j.name, j.data, j.attempt, j.operation_type,
    date_part('epoch', j.created_at),
    case when j.owner is null and j.chain is null and j.series is null and j.saved is null and j.details is null and j.token is null
           and j.regarding_id is null and j.regarding_type is null and j.retries = 0 and j.crashes = 0 and j.depth = 1 and j.correlation = j.id
         then null else relevo.job_particulars(j) end, null::uuid[], null::text[];
  if turn = 0 and (recurs or own or exists (select from relevo.job_lane l where l.name = any (lanes) and l.events = 'all')) then
    perform relevo.after_job_claims(p_host, p_claim);
  end if;
end $$;

-- What follows from claimed rows: of a series the next one waits; where lanes say so, or they are the platform's, their start is told.
create function relevo.after_job_claims(p_host uuid, p_claim bigint) returns void language plpgsql volatile as $$
declare at timestamptz := relevo.now();
begin
  if exists (select from relevo.job j where j.host = p_host and j.claim = p_claim and j.series is not null) then
    perform set_config('synchronous_commit', 'on', true);
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name, data, token,
      owner, created_by, modified_by, retain, auto_delete, system, hold, depth, correlation, correlation_at, extension,
      message_name, regarding_type, regarding_id, series, pattern, anchor, zone, nominal, details)
    select m.id, 0, at, at, 10, g.next_at, g.priority, g.operation_type, g.lane, g.handler, g.name, g.data, g.token,
      g.owner, g.created_by, g.modified_by, g.retain, g.auto_delete, g.system, g.hold, 1, m.id, at, g.extension,
      g.message_name, g.regarding_type, g.regarding_id, g.series, g.pattern, g.anchor, g.zone, g.next_at,
      g.details || jsonb_build_object('ordinal', g.details -> 'next_ordinal')
    from relevo.job g cross join lateral (select relevo.uuid7() as id where g.id is not null) as m
    where g.host = p_host and g.claim = p_claim and g.series is not null and g.attempt = 1 and g.next_at is not null;
  end if;
  if exists (select from relevo.job j join relevo.job_lane l on l.name = j.lane
             where j.host = p_host and j.claim = p_claim and (l.events = 'all' or j.system)) then
    perform relevo.announce_claims(p_host, p_claim);
  end if;
end $$;

-- Claims jobs where parcels wait: as they are, in their order among rows.
create function relevo.claim_jobs_in_order(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[], slots integer[],
  singly boolean)
returns setof relevo.job_notice language plpgsql volatile set enable_seqscan = off as $$
declare
  wanted integer[] := rooms;
  before integer[];
  parcels bigint[];
  next_ranks bigint[];
  next_sequences bigint[];
  p record;
  claimed relevo.job_notice;
  rows boolean := false;
  rows_first boolean := true;
  suspected boolean := false;  -- a host was lost with one of them
begin
  for turn in 1 .. 10 loop
    before := rooms;
    parcels := '{}';
    for n in 1 .. cardinality(lanes) loop
      select * into p from relevo.choose_parcels(lanes[n], rooms[n], wanted[n], array(
        select h.handler from unnest(handler_lanes, handlers) as h (lane, handler) where h.lane = lanes[n]), singly, rows_first);
      parcels := parcels || p.chosen;
      rooms[n] := p.room;
      next_ranks[n] := p.next_rank;
      next_sequences[n] := p.next_sequence;
    end loop;
    if cardinality(parcels) > 0 then
      update relevo.job_parcel q set host = p_host, claim = p_claim, host_name = p_name, taken_at = relevo.now()
      where q.number = any (parcels);
      return query
      select 'parcel', null::uuid, null::smallint, p_claim, q.lane, q.handler, q.name, null::text, 1, q.operation_type,
        date_part('epoch', q.created_at), null::text, q.ids, q.datas
      from relevo.job_parcel q where q.number = any (parcels) order by q.rank, q.sequence;
    end if;
    exit when not exists (select from unnest(rooms) as r where r > 0);
    for claimed in
      select * from relevo.claim_job_rows(
        p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly, next_ranks, next_sequences,
        turn + cardinality(parcels))
    loop
      return next claimed;
      rows := true;
      suspected := suspected or coalesce((claimed.particulars::jsonb ->> 'crashes')::integer > 0, false);
      rooms[array_position(lanes, claimed.lane)] := rooms[array_position(lanes, claimed.lane)] - 1;
    end loop;
    exit when suspected;
    if rooms = before then  -- perhaps others have locked the rows that come first
      exit when not rows_first or not exists (select from unnest(next_ranks) as r where r is not null);
      rows_first := false;
    end if;
  end loop;
  if rows then perform relevo.after_job_claims(p_host, p_claim); end if;
end $$;

-- All a host does with jobs, in one round trip and one commit: settle what is finished, let the next through gates,
-- make ready what is due, claim. Without events all were done, and most of those are plain.
create function relevo.serve_jobs(
  p_host uuid, p_name text, p_claim bigint, lanes text[], rooms integer[], handler_lanes text[], handlers text[],
  ids uuid[] default '{}', events text[] default '{}', claims bigint[] default '{}', postpones timestamptz[] default '{}',
  delays float8[] default '{}', errors integer[] default '{}', messages text[] default '{}', friendlies text[] default '{}',
  results text[] default '{}', saves text[] default '{}', seconds float8[] default '{}', keys text[] default '{}', slots integer[] default '{}',
  singly boolean default false)
returns setof relevo.job_notice language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
declare settled uuid[];
begin
  if cardinality(ids) > 0 then
    if cardinality(events) = 0 and cardinality(keys) = 0 then
      if exists (select from relevo.job_parcel p where p.host = p_host) then
        settled := relevo.end_parcelled_jobs(p_host, ids, claims, friendlies, results, seconds);
      end if;
      if coalesce(cardinality(settled), 0) < cardinality(ids) then
        settled := settled || relevo.end_plain_jobs(p_host, ids, claims, friendlies, results, seconds);
      end if;
    end if;
    if coalesce(cardinality(settled), 0) < cardinality(ids) then
      if cardinality(events) = 0 then events := array_fill('done'::text, array[cardinality(ids)]); end if;
      if cardinality(keys) > 0 then perform relevo.lock_job_gates(keys); end if;
      settled := settled || array(
        select m.id from relevo.move_jobs(ids, events, p_host, claims, postpones, delays, errors, messages, friendlies, results,
                                          saves, seconds, keys => keys) as m);
    end if;
    if coalesce(cardinality(settled), 0) < cardinality(ids) then
      return query
        select 'stale', g.id, null::smallint, g.claim, null::text, null::text, null::text, null::text, null::integer,
          null::integer, null::float8, null::text, null::uuid[], null::text[]
        from unnest(ids, claims) as g (id, claim)
        where not (g.id = any (coalesce(settled, '{}')));
    end if;
  else
    -- A claim that a crash forgets is claimed again, and its fence matches no row.
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if cardinality(ids) = 0 and (select sum(r) from unnest(rooms) as r) >= relevo.parcel_min() then
    -- One after the other: to walk past rows that another has just locked costs more than to wait for its commit.
    perform pg_advisory_xact_lock(1380273162, hashtext(l.name)) from (select unnest(lanes) as name order by 1) as l;
  end if;
  if exists (select from relevo.job_gate) then perform relevo.open_noted_job_gates(); end if;
  if exists (select from relevo.job j where j.status = 10 and j.postpone_until <= relevo.now() and not j.waiting_event) then
    perform relevo.make_jobs_due(500);
  end if;
  -- A call that was on its way when its host was found dead claims nothing: it would only count as a crash.
  if cardinality(lanes) > 0 and exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then
    if exists (select from relevo.job_parcel q where q.host is null and q.lane = any (serve_jobs.lanes)) then
      return query
        select * from relevo.claim_jobs_in_order(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly);
    else
      return query
        select * from relevo.claim_job_rows(p_host, p_name, p_claim, lanes, rooms, handler_lanes, handlers, slots, singly);
    end if;
  end if;
  return query
    select 'asked', j.id, case when j.deleted then -1::smallint else j.status end, j.claim, null::text, null::text, null::text,
      null::text, null::integer, null::integer, null::float8, null::text, null::uuid[], null::text[]
    from relevo.job j where j.host = p_host and j.host is not null and (j.status <> 20 or j.deleted);
end $$;

-- Submits jobs, one row of each array per job (short arrays are filled with nulls). One handler alone is that of all
-- jobs, and so are name, lane and priority then; many of those become parcels. `options` holds what few jobs have. Chained and capped jobs are
-- noted; nothing is locked.
create or replace function relevo.submit_jobs(
  ids uuid[], handlers text[], datas text[], names text[] default '{}', tokens text[] default '{}',
  starts timestamptz[] default '{}', lanes text[] default '{}', priorities smallint[] default '{}',
  owners uuid[] default '{}', options jsonb[] default '{}')
returns void language plpgsql volatile as $$
declare strange text := (
  select min(x.lane) from unnest(lanes) as x (lane)
  where x.lane is not null and not exists (select from relevo.job_lane l where l.name = x.lane));
  at timestamptz := relevo.now();
  common record;
begin
  if exists (select from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-12-31') then
    raise exception 'the start of a job is in the years 1 to 9999, not %',
        (select min(s.start) from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-12-31')
      using errcode = 'RV011';
  end if;
  if strange is not null then
    raise exception 'there is no lane %', strange
      using errcode = 'RV010', hint = 'Configure it on a host, or name another.';
  end if;
  if cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 and cardinality(handlers) = 1 then
    select p.handler, coalesce(names[1], p.handler) as name, l.name as lane, coalesce(priorities[1], 4::smallint) as priority,
      coalesce(h.operation_type, 54) as type, coalesce(h.auto_delete, false) as auto_delete,
      (extract(epoch from at) * 1000000)::bigint - case when l.priority then coalesce(priorities[1], 4) * 60000000::bigint else 0 end as rank,
      l.told < 2 and l.owner_cap is null and coalesce(h.operation_type, 54) in (1, 54) and p.handler is not null
        and coalesce(priorities[1], 4) between 0 and 9 and cardinality(datas) = cardinality(ids) as plain
    into strict common
    from (select handlers[1] as handler) p
    left join relevo.job_handler h on h.name = p.handler
    join relevo.job_lane l on l.name = coalesce(lanes[1], h.lane, 'plugin');
    if common.plain and cardinality(ids) >= relevo.parcel_min()
       and not exists (select from unnest(datas) as d (data) where octet_length(d.data) > 2000)
       and (select count(distinct i) from unnest(ids) as i) = cardinality(ids) then
      insert into relevo.job_parcel (size, keeps, lanes, lane, handler, name, operation_type, priority, rank, created_at,
        sequence, ids, datas, sequences)
      select cardinality(c.ids), not common.auto_delete, array[common.lane], common.lane, common.handler, common.name,
        common.type, common.priority, common.rank, at, c.sequences[1], c.ids, c.datas, c.sequences
      from (
        select ids[n : n + relevo.parcel_max() - 1] as ids, datas[n : n + relevo.parcel_max() - 1] as datas,
          array(select nextval('relevo.job_sequence') from generate_series(n, least(n + relevo.parcel_max() - 1, cardinality(ids)))) as sequences
        from generate_series(1, cardinality(ids), relevo.parcel_max()) as n order by n offset 0
      ) c;
      return;
    end if;
    insert into relevo.job (  -- most jobs are as plain as this, and it costs half as much
      id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
      correlation, correlation_at, extension, message_name)
    select g.id, common.rank, at, at, 0, common.priority, common.type, common.lane, common.handler, common.name, g.data,
      common.auto_delete, g.id, at, common.handler, common.handler
    from unnest(ids, datas) as g (id, data);
  elsif cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 then
    insert into relevo.job (
      id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
      correlation, correlation_at, extension, message_name)
    select g.id, (extract(epoch from at) * 1000000)::bigint - case when l.priority then coalesce(g.priority, 4) * 60000000::bigint else 0 end,
      at, at, 0, coalesce(g.priority, 4), coalesce(h.operation_type, 54), l.name, g.handler, coalesce(g.name, g.handler), g.data,
      coalesce(h.auto_delete, false), g.id, at, g.handler, g.handler
    from unnest(ids, handlers, datas, names, lanes, priorities) with ordinality
      as g (id, handler, data, name, lane, priority, n)
    left join relevo.job_handler h on h.name = g.handler
    join relevo.job_lane l on l.name = coalesce(g.lane, h.lane, 'plugin')
    order by g.n;
  else
    perform relevo.submit_special_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  end if;
  if exists (select from relevo.job_lane l where l.events = 'all')
     or exists (select from unnest(options) as o (given) where (o.given ->> 'system')::boolean) then
    perform relevo.announce_jobs(array_agg(j.id), array_agg(j.version), array_agg('submitted'::text), array_agg(null::smallint),
      array_agg(j.status), array_agg(j.name), array_agg(j.lane), array_agg(j.operation_type), array_agg(j.attempt),
      array_agg(j.host_name), array_agg(j.error_code), array_agg(j.created_at), array_agg(j.started_at))
    from relevo.job j join relevo.job_lane l on l.name = j.lane
    where j.id = any (ids) and (l.events = 'all' or j.system);
  end if;
end $$;

