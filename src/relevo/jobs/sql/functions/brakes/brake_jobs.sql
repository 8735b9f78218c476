-- Suspends some ready jobs of braked extensions; returns how many. Jobs in parcels become rows first.
create or replace function relevo.brake_jobs(amount integer) returns integer
language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  ids uuid[];
  untils timestamptz[];
begin
  perform relevo.unpack_ready(array(select distinct h from relevo.job_brake b cross join unnest(b.handlers) as h), amount);
  select array_agg(x.id), array_agg(x.until) into ids, untils from (
    select j.id, b.until
    from relevo.job_brake b
    cross join lateral unnest(b.handlers) as s (handler)
    join relevo.job j on j.handler = s.handler
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
