-- description: brakes of extensions, events that workflows wait for, bulk operations, imports, match codes
-- locks: writers of relevo.job, while an index of few rows is made

-- Jobs that a brake holds wait for an event, its end; -2147088105 is 0x80060917.
create index job_braked on relevo.job (extension, rank, sequence)
  where status = 10 and waiting_event and error_code = -2147088105;

-- Moves some ready jobs of braked extensions aside; answers how many.
create function relevo.brake_jobs(amount integer) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare
  ids uuid[];
  untils timestamptz[];
begin
  select array_agg(x.id), array_agg(x.until) into ids, untils from (
    select j.id, b.until
    from relevo.job_brake b
    cross join lateral unnest(b.lanes, b.handlers) as s (lane, handler)
    join relevo.job j on j.lane = s.lane and j.handler = s.handler
    where j.status = 0 and not j.chained and not j.capped and j.extension = b.extension and j.id is distinct from b.probe
    limit amount
    for update of j skip locked
  ) x;
  if ids is null then return 0; end if;
  perform from relevo.move_jobs(ids, array_fill('brake'::text, array[cardinality(ids)]), postpones => untils,
    errors => array_fill(-2147088105, array[cardinality(ids)]));
  update relevo.job j set waiting_event = true where j.id = any (ids) and j.status = 10 and j.error_code = -2147088105;
  return cardinality(ids);
end $$;

-- What became of the probe of a brake: `wait`, `again` (another is needed), `off` or `on`.
create function relevo.judge_probe(brake relevo.job_brake) returns text language plpgsql stable as $$
declare
  live relevo.job;
  ended smallint;
begin
  select * into live from relevo.job j where j.id = brake.probe;
  if found then
    if live.status <> 10 then return 'wait'; end if;
    if live.attempt = brake.probe_attempt then
      -- Not started: about to be due, unless somebody moved it away.
      return case when live.waiting_event or live.postpone_until is null or live.postpone_until > relevo.now()
        then 'again' else 'wait' end;
    end if;
    return case when live.waiting_event then 'off' else 'on' end;
  end if;
  select h.status into ended from relevo.job_history h where h.id = brake.probe;
  -- A success may have left no record.
  return case ended when 31 then 'on' when 32 then 'again' else 'off' end;
end $$;

-- Puts brakes on, probes, renews and lifts them. Answers what changed, and the log gets it too.
create function relevo.watch_brakes(most integer, span interval, pause interval)
returns table (extension text, change text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now();
  brake relevo.job_brake;
  verdict text;
  found_id uuid;
  found_attempt integer;
  changed text[] := '{}';
  changes text[] := '{}';
begin
  for brake in select * from relevo.job_brake b where b.until <= at order by b.extension for update loop
    verdict := case when brake.probe is null then 'again' else relevo.judge_probe(brake) end;
    if verdict = 'again' then
      select j.id, j.attempt into found_id, found_attempt from relevo.job j
      where j.extension = brake.extension and j.status = 10 and j.waiting_event and j.error_code = -2147088105
      order by j.rank, j.sequence limit 1 for update skip locked;
      if found_id is null then
        verdict := 'off';
      else
        update relevo.job j set waiting_event = false, postpone_until = least(j.postpone_until, at) where j.id = found_id;
        update relevo.job_brake b set probe = found_id, probe_attempt = found_attempt where b.extension = brake.extension;
      end if;
    end if;
    if verdict = 'off' then
      delete from relevo.job_brake b where b.extension = brake.extension;
      delete from relevo.job_failure f where f.extension = brake.extension;
    elsif verdict = 'on' then
      update relevo.job_brake b set until = at + pause, probe = null, probe_attempt = null where b.extension = brake.extension;
    end if;
    if verdict in ('on', 'off') then
      changed := changed || brake.extension;
      changes := changes || verdict;
    end if;
  end loop;
  with put as (
    insert into relevo.job_brake (extension, lanes, handlers, since, until)
    select s.extension, array_agg(s.lane), array_agg(s.handler), at, at + pause
    from (
      select f.extension, f.lane, f.handler, sum(f.failures) as failures from relevo.job_failure f
      where f.minute > at - span group by 1, 2, 3
    ) s
    group by s.extension having sum(s.failures) > most
    on conflict do nothing
    returning extension
  )
  select changed || coalesce(array_agg(p.extension), '{}'), changes || coalesce(array_agg('on'::text), '{}')
  into changed, changes from put p;
  delete from relevo.job_failure f where f.minute < at - span - interval '1 minute';
  if cardinality(changed) > 0 then
    perform relevo.append_events(
      array_agg('relevo.brake.' || c.change), array_agg(1::smallint), array_agg('extension/' || c.extension),
      array_agg((extract(epoch from at) * 1000000)::bigint),
      array_agg(jsonb_strip_nulls(jsonb_build_object('extension', c.extension, 'until', b.until))::text), pg_backend_pid())
    from unnest(changed, changes) as c (extension, change) left join relevo.job_brake b on b.extension = c.extension;
  end if;
  return query select c.extension, c.change from unnest(changed, changes) as c (extension, change);
end $$;

-- Lets go what brakes held that are no more, and tells the others until when; answers how many it touched.
create function relevo.release_braked_jobs(amount integer) returns integer
language sql volatile set enable_seqscan = off as $$
  with held as (
    select j.id, b.until from relevo.job j left join relevo.job_brake b on b.extension = j.extension
    where j.status = 10 and j.waiting_event and j.error_code = -2147088105
      and (b.extension is null or j.postpone_until < b.until)
    limit amount for update of j skip locked
  ), touched as (
    update relevo.job j set waiting_event = held.until is not null,
      postpone_until = coalesce(held.until, least(j.postpone_until, relevo.now())),
      version = j.version + 1, modified_at = relevo.now()
    from held where j.id = held.id
    returning 1
  )
  select count(*)::integer from touched;
$$;

-- What suspended jobs wait for: an event, or the end of other jobs (one row for each), until `deadline`.
-- An event that came is kept here until the job has written down that it got it.
create table relevo.job_wait (
  job      uuid not null,
  step     integer not null,
  part     integer not null default 0,
  event    text collate "C",
  key      text collate "C",
  child    uuid,
  deadline timestamptz,
  since    timestamptz not null default relevo.now(),
  came_at  timestamptz,
  data     text,
  woken    boolean not null default false,
  primary key (job, step, part)
);
create index job_wait_events on relevo.job_wait (event, key) where event is not null and came_at is null;
create index job_wait_deadlines on relevo.job_wait (deadline) where not woken and deadline is not null;
create index job_wait_children on relevo.job_wait (job) where not woken and child is not null;

-- Events that nobody waited for when they came.
create table relevo.job_event (
  id    bigint generated always as identity primary key,
  event text collate "C" not null,
  key   text collate "C" not null,
  at    timestamptz not null default relevo.now(),
  data  text
);
create index job_events on relevo.job_event (event, key, id);

-- Waiters and senders of an event go one by one, so that none misses the other.
create function relevo.lock_job_event(event text, key text) returns void language plpgsql volatile as $$
begin
  perform relevo.stay_awake();
  perform pg_advisory_xact_lock(1380273161, hashtext(event || chr(31) || key));
end $$;

-- Gives an event to all who wait for it, or keeps it for the first who will; answers how many got it.
create function relevo.signal_jobs(p_event text, p_key text, p_data text) returns integer language plpgsql volatile as $$
declare waiters uuid[];
begin
  perform relevo.lock_job_event(p_event, p_key);
  with given as (
    update relevo.job_wait w set came_at = relevo.now(), data = p_data, woken = true
    where w.event = p_event and w.key = p_key and w.came_at is null
      and exists (select from relevo.job j where j.id = w.job and not j.deleted)
    returning w.job
  )
  select array_agg(distinct job) into waiters from given;
  if waiters is null then
    insert into relevo.job_event (event, key, data) values (p_event, p_key, p_data);
    return 0;
  end if;
  perform relevo.wake_jobs(waiters);
  return cardinality(waiters);
end $$;

-- Makes ready those of some jobs that wait for an event.
create function relevo.wake_jobs(ids uuid[]) returns void language plpgsql volatile as $$
declare found uuid[];
begin
  select array_agg(x.id) into found from (
    select j.id from relevo.job j where j.id = any (ids) and j.status = 10 and j.waiting_event order by j.id for update
  ) x;
  if found is not null then
    perform from relevo.move_jobs(found, array_fill('signal'::text, array[cardinality(found)]));
  end if;
end $$;

-- Wakes jobs whose wait took too long, or whose children are all over; answers how many.
create function relevo.wake_waiting_jobs(amount integer) returns integer
language plpgsql volatile set enable_seqscan = off as $$
declare ready uuid[];
begin
  with late as (
    select w.job from relevo.job_wait w where not w.woken and w.deadline <= relevo.now() order by w.deadline limit amount
  ), parents as (
    select distinct p.job from relevo.job_wait p
    where not p.woken and p.child is not null and not exists (
      select from relevo.job_wait w join relevo.job c on c.id = w.child and not c.deleted
      where w.job = p.job and not w.woken and w.child is not null)
    limit amount
  ), chosen as (select job from late union select job from parents), marked as (
    update relevo.job_wait w set woken = true from chosen c where w.job = c.job returning w.job
  )
  select array_agg(distinct job) into ready from marked;
  if ready is null then return 0; end if;
  perform relevo.wake_jobs(ready);
  return cardinality(ready);
end $$;

-- Bulk operations and how far they are; one row for each job, also those of a series.
create table relevo.bulk_operation (
  id            uuid primary key default relevo.uuid7(),
  job           uuid not null unique,
  kind          integer not null,
  name          text not null,
  queries       jsonb not null,
  query_index   integer not null default 0,
  success_count bigint not null default 0,
  failure_count bigint not null default 0,
  owner         uuid,
  created_at    timestamptz not null default relevo.now()
);

-- Rows that a bulk operation could not process.
create table relevo.bulk_failure (
  id          uuid primary key default relevo.uuid7(),
  job         uuid not null,
  row_id      text not null,
  query_index integer not null,
  code        integer not null,
  message     text not null,
  at          timestamptz not null default relevo.now()
);
create index bulk_failures on relevo.bulk_failure (job, at);

-- Bulk deletes under the names that clients of Dataverse know.
create view relevo.bulk_delete as
  select b.id as bulkdeleteoperationid, b.job as asyncoperationid, b.name, b.queries as orderedquerysetxml,
    b.query_index as processingqeindex, b.success_count as successcount, b.failure_count as failurecount,
    j.series is not null as isrecurring, w.postpone_until as nextrun, b.owner as ownerid, b.created_at as createdon,
    j.status / 10 as statecode,
    case when j.status = 10 and j.retries > 0 and j.postpone_until is not null then 11
      when j.status = 10 and j.attempt > 0 then 12 else j.status end as statuscode
  from relevo.bulk_operation b
  left join relevo.jobs j on j.id = b.job
  left join relevo.job w on w.series = j.series and w.attempt = 0 and w.status in (0, 10)
  where b.kind = 13;

create view relevo.bulk_delete_failure as
  select f.id as bulkdeletefailureid, b.id as bulkdeleteoperationid, f.job as asyncoperationid, f.row_id as regardingobjectid,
    f.code as errornumber, f.message as errordescription, f.query_index as orderedqueryindex, f.at as createdon
  from relevo.bulk_failure f join relevo.bulk_operation b on b.job = f.job and b.kind = 13;

-- What a job has begun to send to whom: nobody gets it twice.
create table relevo.bulk_delivery (
  job       uuid not null,
  recipient text collate "C" not null,
  sent      boolean not null default false,
  primary key (job, recipient)
);

-- Imports: the file, and its rows on their way from text to items.
create table relevo.import (
  id         uuid primary key,
  container  text not null,
  options    jsonb not null,
  content    bytea not null,
  created_at timestamptz not null default relevo.now()
);
create table relevo.import_row (
  import  uuid not null references relevo.import on delete cascade,
  number  bigint not null,
  raw     jsonb,
  item    jsonb,
  error   text,
  written boolean not null default false,
  primary key (import, number)
);

-- Rules of duplicate detection, the codes that items have by them, and what was found.
create table relevo.duplicate_rule (
  name         text collate "C" primary key,
  container    text not null,
  fields       jsonb not null,
  published_at timestamptz
);
create table relevo.match_code (
  rule text collate "C" not null references relevo.duplicate_rule on delete cascade,
  pk   text collate "C" not null,
  id   text collate "C" not null,
  code text collate "C" not null,
  primary key (rule, pk, id)
);
create index match_codes on relevo.match_code (rule, code, pk, id);
create table relevo.duplicate (
  job            uuid not null,
  rule           text collate "C" not null,
  base_pk        text collate "C" not null,
  base_id        text collate "C" not null,
  duplicate_pk   text collate "C" not null,
  duplicate_id   text collate "C" not null,
  primary key (job, rule, base_pk, base_id, duplicate_pk, duplicate_id)
);
