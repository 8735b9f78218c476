-- Fails ready jobs whose handler no host has had for a while; returns how many.
create or replace function relevo.fail_unserved_jobs(patience interval, amount integer, code integer, told text) returns integer
language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  lost uuid[];
  keys text[];
begin
  -- After an outage hosts need time to declare their handlers.
  if not exists (select from relevo.host h where h.ended_at is null and h.started_at < relevo.now() - patience) then
    return 0;
  end if;
  with recursive kinds as (
    (select handler from relevo.job where status = 0 and not chained and not capped order by handler limit 1)
    union all
    select n.handler from kinds k cross join lateral (
      select j.handler from relevo.job j
      where j.status = 0 and not j.chained and not j.capped and j.handler > k.handler
      order by j.handler limit 1) n
  )
  select array_agg(j.id), array_agg(distinct 'c' || j.chain) filter (where j.chain is not null) into lost, keys
  from (
    select j.id, j.chain from kinds k join relevo.job j on j.handler = k.handler
    where j.status = 0 and not j.chained and not j.capped and j.modified_at < relevo.now() - patience
      and not (j.series is not null and j.attempt = 0)  -- a series goes on when its handler is back
      and not exists (select from relevo.job_handler h where h.name = k.handler and h.served_at >= relevo.now() - patience)
    limit amount
  ) j;
  if lost is null then return 0; end if;
  perform relevo.lock_job_gates(keys);
  perform from relevo.job j where j.id = any (lost) order by j.id for update;
  perform from relevo.move_jobs(lost, array_fill('unserved'::text, array[cardinality(lost)]),
    errors => array_fill(code, array[cardinality(lost)]), messages => array_fill(told, array[cardinality(lost)]),
    friendlies => array_fill(told, array[cardinality(lost)]), keys => coalesce(keys, '{}'));
  return cardinality(lost);
end $$;
