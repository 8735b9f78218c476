-- description: the event log: its stripes, events by day, and the one append
-- locks: relevo.feed_unit for an instant, since its units may read the event log, too

create table relevo.event_log (
  one            boolean primary key default true check (one),
  incarnation    uuid not null default gen_random_uuid(),
  kept           interval not null default '7 days' check (kept > '0'),
  trimmed_before timestamptz
);
insert into relevo.event_log default values;

-- A stripe is to the log what a range is to a container: an order of its own, under a stamp lock of
-- its own. 16 are shared by subjects, 16 by writing pipelines, so that neither waits for the other.
-- The ids are above those of all ranges, so that stamp locks in rising order take those of the log last.
create table relevo.event_stripe (
  id          integer primary key,
  kind        text not null check (kind in ('subject', 'pipeline')),
  trimmed_lsn bigint not null default 0
);
insert into relevo.event_stripe (id, kind)
select 2147480000 + n, case when n < 16 then 'subject' else 'pipeline' end from generate_series(0, 31) as n;

-- No key and one index: what an event costs is one row and one entry at the right edge of its stripe.
create table relevo.event (
  lsn     bigint not null,
  version bigint not null,
  at      timestamptz not null,
  stripe  integer not null,
  schema  smallint not null,
  type    text collate "C" not null,
  subject text collate "C" not null,
  data    json not null
) partition by range (at);
create index event_feed on relevo.event (stripe, lsn);

-- Partitions follow each other without a gap; one goes as a whole when all of it is too old.
create table relevo.event_partition (
  low        timestamptz primary key,
  high       timestamptz not null check (low < high),
  name       text not null unique,
  trimmed_at timestamptz
);

-- Time to position: an LSN below all that a stripe got in a minute, and above all that it had before.
create table relevo.event_time (
  stripe integer not null,
  at     timestamptz not null,
  lsn    bigint not null,
  primary key (stripe, at)
);

-- Sees to it that there is a partition for an instant: if none reaches it, one from the end of the
-- last to the end of that day (UTC). It is attached, which excludes neither appends nor reads.
create function relevo.make_event_partition(instant timestamptz) returns boolean language plpgsql volatile as $$
declare
  starts timestamptz;
  ends constant timestamptz := date_trunc('day', instant, 'UTC') + interval '24 hours';
  table_name text;
begin
  lock table relevo.event in share update exclusive mode;
  select max(p.high) into starts from relevo.event_partition p;
  if starts > instant then return false; end if;
  starts := coalesce(starts, ends - interval '24 hours');
  table_name := 'event_' || to_char(starts at time zone 'UTC', 'YYYYMMDD');
  execute format('create table relevo.%I (like relevo.event including all)', table_name);
  execute format('alter table relevo.event attach partition relevo.%I for values from (%L) to (%L)',
                 table_name, starts, ends);
  insert into relevo.event_partition (low, high, name) values (starts, ends, table_name);
  return true;
end $$;
select relevo.make_event_partition(relevo.now());

-- Appends events in the caller's transaction, as its last statement: the stamp locks that it takes
-- are held to the end. Each event gets an LSN of its own, in the order given. Without `pipeline` the
-- subject decides the stripe, so that the events of one subject are in the order of their LSNs;
-- with it the pipeline does, and those of one subject are ordered by their version.
create function relevo.append_events(
  types text[], schemas smallint[], subjects text[], versions bigint[], bodies text[],
  pipeline integer default null)
returns void language plpgsql volatile as $$
declare
  stripes integer[];
  number integer;
  made_from timestamptz;
  made_until timestamptz;
  stamp timestamptz;
  below bigint;
begin
  if cardinality(types) = 0 then return; end if;
  -- Items written by relevo.put_item are stamped at commit; now instead, since the log's locks come last.
  if exists (select from relevo.stamp_request r where r.xid = pg_current_xact_id()) then
    set constraints relevo.stamp immediate;
    set constraints relevo.stamp deferred;
  end if;
  select min(p.low), max(p.high) into made_from, made_until from relevo.event_partition p;
  if made_until is null or made_until <= relevo.now() then
    perform relevo.make_event_partition(relevo.now());
    select min(p.low), max(p.high) into made_from, made_until from relevo.event_partition p;
  end if;
  perform relevo.stay_awake();
  if pipeline is null then
    select array_agg(2147480000 + (hashtext(s) & 15)) into stripes from unnest(subjects) as s;
    for number in select distinct unnest(stripes) order by 1 loop
      perform pg_advisory_xact_lock(1380273158, number);
    end loop;
  else
    number := 2147480016 + (pipeline & 15);
    perform pg_advisory_xact_lock(1380273158, number);
    stripes := array_fill(number, array[cardinality(types)]);
  end if;
  -- Whoever waited past the end of the last partition, or whose server's clock fell behind the first,
  -- writes into that one all the same.
  stamp := greatest(least(relevo.now_after_waiting(), made_until - interval '1 microsecond'), made_from);
  below := nextval('relevo.lsn');
  insert into relevo.event (lsn, version, at, stripe, schema, type, subject, data)
  select nextval('relevo.lsn'), g.version, stamp, g.stripe, g.schema, g.type, g.subject, g.body::json
  from unnest(types, schemas, subjects, versions, bodies, stripes)
    as g (type, schema, subject, version, body, stripe);
  insert into relevo.event_time (stripe, at, lsn)
  select distinct s, date_trunc('minute', stamp, 'UTC'), below from unnest(stripes) as s
  on conflict (stripe, at) do nothing;
end $$;

-- Declares partitions that are older than the log is kept as trimmed: positions in them are refused
-- from the commit of this on. Answers how many.
create function relevo.trim_events() returns integer language plpgsql volatile as $$
declare
  edge timestamptz;
  trimmed integer;
begin
  update relevo.event_partition p set trimmed_at = relevo.now()
  where p.trimmed_at is null and p.high <= relevo.now() - (select l.kept from relevo.event_log l);
  get diagnostics trimmed = row_count;
  if trimmed = 0 then return 0; end if;
  select max(p.high) into edge from relevo.event_partition p where p.trimmed_at is not null;
  update relevo.event_log l set trimmed_before = greatest(l.trimmed_before, edge);
  update relevo.event_stripe s set trimmed_lsn = gone.lsn
  from (select i.id, (select max(e.lsn) from relevo.event e where e.stripe = i.id and e.at < edge) as lsn
        from relevo.event_stripe i) as gone
  where gone.id = s.id and gone.lsn > s.trimmed_lsn;
  delete from relevo.event_time t where t.at < edge;
  return trimmed;
end $$;

-- Drops partitions that were trimmed longer ago than any statement lasts, so that no reader that
-- passed the check finds them gone. Excludes everybody for an instant; it gives up rather than wait.
create function relevo.drop_trimmed_events() returns integer language plpgsql volatile
set lock_timeout = '100ms' as $$
declare
  gone record;
  dropped integer := 0;
begin
  for gone in select p.low, p.name from relevo.event_partition p
              where p.trimmed_at < relevo.now() - interval '1 minute' order by p.low loop
    execute format('drop table relevo.%I', gone.name);
    delete from relevo.event_partition p where p.low = gone.low;
    dropped := dropped + 1;
  end loop;
  return dropped;
end $$;

alter table relevo.feed_unit drop constraint feed_unit_mode_check;
alter table relevo.feed_unit add constraint feed_unit_mode_check
  check (mode in ('latest', 'all_versions', 'events'));
