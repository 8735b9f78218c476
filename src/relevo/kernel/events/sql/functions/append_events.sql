-- Appends events in the caller's transaction, as its last statement: the stamp locks that it takes
-- are held to the end. Each event gets an LSN of its own, in the order given. Without `pipeline` the
-- subject decides the stripe, so that the events of one subject are in the order of their LSNs;
-- with it the pipeline does, and those of one subject are ordered by their version.
create or replace function relevo.append_events(
  types text[], schemas smallint[], subjects text[], versions bigint[], bodies text[],
  pipeline integer default null)
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
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
