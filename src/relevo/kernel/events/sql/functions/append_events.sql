-- Appends events in the caller's transaction, as its last statement: the stamp locks that it takes are held to the end. Each event
-- gets an LSN of its own, in the order given. Without `pipeline` the subject decides the stripe, so that the events of one subject
-- are in the order of their LSNs; with it the pipeline does, and those of one subject are ordered by their version. A batch has
-- at most 250 events, and 256 KiB of bodies before its last. With `columns` instead of bodies (see relevo.event_column) there
-- is one batch, of a pipeline, and one type or schema holds for all.
create or replace function relevo.append_events(
  types text[], schemas smallint[], subjects text[], versions bigint[], bodies text[],
  pipeline integer default null, columns text default null)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
  stripes integer[];
  number integer;
  made_from timestamptz;
  made_until timestamptz;
  stamp timestamptz;
  lsns bigint[];
begin
  if cardinality(subjects) = 0 then return; end if;
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
    stripes := array(select 2147480000 + (hashtext(s) & 15) from unnest(subjects) as s);
    for number in select distinct unnest(stripes) order by 1 loop
      perform pg_advisory_xact_lock(1380273158, number);
    end loop;
  else
    number := 2147480016 + (pipeline & 15);
    perform pg_advisory_xact_lock(1380273158, number);
    stripes := array_fill(number, array[cardinality(subjects)]);
  end if;
  -- Whoever waited past the end of the last partition, or whose server's clock fell behind the first,
  -- writes into that one all the same.
  stamp := greatest(least(relevo.now_after_waiting(), made_until - interval '1 microsecond'), made_from);
  if columns is not null then
    lsns := array(select nextval('relevo.lsn') from generate_series(1, cardinality(subjects)));
    insert into relevo.event_batch (stripe, last, at, lsns, types, schemas, subjects, versions, data)
    values (number, lsns[cardinality(lsns)], stamp, lsns, types, schemas, subjects, versions, columns);
    return;
  end if;
  insert into relevo.event_batch (stripe, last, at, lsns, types, schemas, subjects, versions, data)
  select e.stripe, max(e.lsn), stamp, array_agg(e.lsn order by e.lsn),
         case when min(e.type) = max(e.type) then array[min(e.type)] else array_agg(e.type order by e.lsn) end,
         case when min(e.schema) = max(e.schema) then array[min(e.schema)] else array_agg(e.schema order by e.lsn) end,
         array_agg(e.subject order by e.lsn), array_agg(e.version order by e.lsn),
         '[' || string_agg(e.body, ',' order by e.lsn) || ']'
  from (
    select s.*, (row_number() over stripe - 1) / 250 + (sum(length(s.body)) over stripe - length(s.body)) / 262144 as batch
    from (
      select nextval('relevo.lsn') as lsn, g.stripe, g.type, g.schema, g.subject, g.version, g.body::json::text as body
      from unnest(types, schemas, subjects, versions, bodies, stripes) as g (type, schema, subject, version, body, stripe)) s
    window stripe as (partition by s.stripe order by s.lsn)) e
  group by e.stripe, e.batch;
end $$;
