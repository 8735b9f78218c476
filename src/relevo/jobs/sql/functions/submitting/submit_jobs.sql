-- Submits jobs, one element of each array per job (missing elements are null). A single handler applies to all jobs, as do
-- name, lane and priority then; many such jobs become parcels. `options` holds rare fields. Gates of chained and capped jobs
-- are noted; nothing is locked.
create or replace function relevo.submit_jobs(
  ids uuid[], handlers text[], datas text[], names text[] default '{}', tokens text[] default '{}',
  starts timestamptz[] default '{}', lanes text[] default '{}', priorities smallint[] default '{}',
  owners uuid[] default '{}', options jsonb[] default '{}')
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare strange text := (
  select min(x.lane) from unnest(lanes) as x (lane)
  where x.lane is not null and not exists (select from relevo.job_lane l where l.name = x.lane));
  at timestamptz := relevo.now();
  common record;
begin
  if exists (select from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-01-01') then
    raise exception 'the start of a job is in the years 1 to 9998, not %',
        (select min(s.start) from unnest(starts) as s (start) where s.start < '0001-01-01' or s.start >= '9999-01-01')
      using errcode = 'RV011';
  end if;
  if strange is not null then
    raise exception 'there is no lane %', strange
      using errcode = 'RV010', hint = 'Configure it on a host, or name another.';
  end if;
  if cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 and cardinality(handlers) = 1 then
    select p.*, p.told < 2 and p.owner_cap is null and p.operation_type in (1, 54) and p.handler is not null
        and p.priority between 0 and 9 as plain
    into strict common
    from relevo.job_terms(at, handlers[1], names[1], lanes[1], priorities[1]) p;
    if common.plain and cardinality(ids) >= relevo.parcel_min() then
      if relevo.submit_parcels(ids, datas, common.lane, common.handler, common.name, common.operation_type, common.priority, common.rank,
                               not common.auto_delete, at) then
        return;
      end if;
    end if;
    handlers := array_fill(common.handler, array[cardinality(ids)]);
    names := array_fill(common.name, array[cardinality(ids)]);
    lanes := array_fill(common.lane, array[cardinality(ids)]);
    priorities := array_fill(common.priority, array[cardinality(ids)]);
  end if;
  if cardinality(tokens) + cardinality(starts) + cardinality(owners) + cardinality(options) = 0 then
    insert into relevo.job (
      id, rank, created_at, modified_at, status, priority, operation_type, lane, handler, name, data, auto_delete,
      correlation, correlation_at, extension, message_name)
    select g.id, p.rank, at, at, 0, p.priority, p.operation_type, p.lane, p.handler, p.name, g.data, p.auto_delete, g.id, at,
      p.handler, p.handler
    from unnest(ids, handlers, datas, names, lanes, priorities) with ordinality
      as g (id, handler, data, name, lane, priority, n)
    cross join lateral relevo.job_terms(at, g.handler, g.name, g.lane, g.priority) p
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
