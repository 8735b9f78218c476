-- Takes jobs from hosts that have ended, some at a time; returns how many. Any of them may have crashed its host, and only a
-- job that ran alone is proven to have: it fails if it has lost `crashes_max` hosts (or the number of its handler). A job that
-- has lost two hosts must run alone. One that never runs alone, because it takes longer than hosts keep others away, fails
-- after `factor` times as many losses. If ended hosts have parcels, the function only unpacks some of them and returns -1,
-- because that must commit before it waits for gates.
create or replace function relevo.recover_jobs(amount integer, crashes_max integer, factor integer default 10) returns integer
language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  lost uuid[];
  mosts integer[];
  kinds text[];
  keys text[];
begin
  if relevo.unpack_lost_parcels(10) then return -1; end if;
  with recursive hosts as (
    (select host from relevo.job where host is not null order by host limit 1)
    union all
    select (select j.host from relevo.job j where j.host > h.host order by j.host limit 1) from hosts h where h.host is not null
  )
  select array_agg(j.id), array_agg(distinct 'c' || j.chain) filter (where j.chain is not null)
  into lost, keys
  from (
    select j.id, j.chain from hosts h join relevo.job j on j.host = h.host
    where not exists (select from relevo.host x where x.incarnation = h.host and x.ended_at is null)
    limit amount
  ) j;
  if lost is null then return 0; end if;
  perform relevo.lock_job_gates(keys);
  -- Judged again: rows that are locked by now belong to another transaction.
  select array_agg(j.id), array_agg(j.most), array_agg(case when j.status = 20
    and j.crashes + 1 >= case when j.alone then j.most else factor * j.most end then 'crash_out' else 'lost' end)
  into lost, mosts, kinds
  from (
    select j.id, j.status, j.crashes, j.alone, coalesce(h.crashes_max, recover_jobs.crashes_max) as most
    from relevo.job j left join relevo.job_handler h on h.name = j.handler
    where j.id = any (lost) and j.host is not null
      and not exists (select from relevo.host x where x.incarnation = j.host and x.ended_at is null)
    order by j.id for update of j skip locked
  ) j;
  if lost is null then return 0; end if;
  perform from relevo.move_jobs(lost, kinds,
    errors => array(select case k when 'crash_out' then -2147220956 end from unnest(kinds) as k),
    friendlies => array(select case k when 'crash_out' then 'host lost' end from unnest(kinds) as k),
    messages => array(select case k when 'crash_out' then 'host lost' end from unnest(kinds) as k),
    keys => coalesce(keys, '{}'));
  update relevo.job j set alone = true from unnest(lost, mosts) as l (id, most)
  where j.id = l.id and j.status < 20 and not j.alone and j.crashes >= greatest(1, least(2, l.most - 1));
  return cardinality(lost);
end $$;
