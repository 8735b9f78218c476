-- Follow-ups of moves: holds the rest of a chain, ends a series, opens gates, counts for batches, writes events.
create or replace function relevo.after_job_moves(moved relevo.job_move[], keys text[], audit boolean)
returns void language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
declare
  open_keys text[];
  ended uuid[];
begin
  if exists (select from unnest(moved) as m where m.after = 31 and m.hold and m.chain is not null) then
    with held as (
      update relevo.job j set status = 10, postpone_until = null, version = j.version + 1, modified_at = relevo.now(),
        capped = l.owner_cap is not null and j.owner is not null
      from unnest(moved) as m, relevo.job_lane l
      where m.after = 31 and m.hold and j.chain = m.chain and j.status = 0 and j.chained and l.name = j.lane
      returning j.*
    )
    select moved || array_agg(row(id, 'hold', 0, 10, version, host, lane, owner, chain, chained, capped, name, operation_type,
                                  attempt, host_name, error_code, created_at, started_at, series, false, system, null, batch)::relevo.job_move)
    into moved from held;
  end if;
  select array_agg(w.id) into ended
  from unnest(moved) as m join relevo.job w on w.series = m.series and w.attempt = 0 and w.status in (0, 10)
  where m.after = 31 and m.details @> '{"stop_on_failure": true}';
  if ended is not null then
    perform from relevo.move_jobs(ended, array_fill('cancel'::text, array[cardinality(ended)]));
  end if;
  select array_agg(distinct k.key) into open_keys
  from (
    select 'c' || m.chain as key from unnest(moved) as m
    where m.chain is not null and not m.chained and (m.after >= 30 or m.after = -1)
    union all
    select relevo.job_owner_key(m.lane, m.owner) from unnest(moved) as m join relevo.job_lane l on l.name = m.lane
    where l.owner_cap is not null and m.owner is not null and m.after not between 20 and 22
  ) k;
  if open_keys is not null then
    -- Gates that the caller did not lock are left to the next claim.
    insert into relevo.job_gate (key) select k from unnest(open_keys) as k where not (k = any (keys));
    perform relevo.open_job_gates(array(select k from unnest(open_keys) as k where k = any (keys)));
  end if;
  if exists (select from unnest(moved) as m where m.batch is not null) then
    insert into relevo.job_batch_delta (batch, succeeded, failed, canceled)
    select m.batch, count(*) filter (where m.after = 30), count(*) filter (where m.after = 31), count(*) filter (where m.after in (-1, 32))
    from unnest(moved) as m where m.batch is not null and (m.after >= 30 or m.after = -1) group by m.batch;
  end if;
  perform relevo.announce_jobs(array_agg(e.id), array_agg(e.version), array_agg(e.kind), array_agg(e.before), array_agg(e.after),
    array_agg(e.name), array_agg(e.lane), array_agg(e.operation_type), array_agg(e.attempt), array_agg(e.host_name),
    array_agg(e.error_code), array_agg(e.created_at), array_agg(e.started_at))
  from (
    select m.*, case
        when m.event = 'delete' then 'deleted' when m.event = 'lost' and m.after < 30 then 'lost'
        when m.event = 'retry' and m.after = 10 then 'retrying'
        when m.after = 30 then 'succeeded' when m.after = 31 then 'failed' when m.after = 32 then 'canceled'
        when m.after = 0 then 'resumed' when m.after = 10 then 'suspended' when m.event = 'resume' then 'resumed'
        when m.after = 21 then 'pausing' when m.after = 22 then 'canceling' end as kind
    from unnest(moved) as m join relevo.job_lane l on l.name = m.lane
    where (m.after <> -1 or m.event = 'delete')
      and (l.events = 'all' or audit or m.system or (l.events = 'ends' and (m.after >= 30 or m.event = 'delete')))
  ) e;
  if exists (select from unnest(moved) as m where m.series is not null and (m.after >= 30 or m.after = -1)) then
    perform relevo.announce_series_ends(array(select distinct m.series from unnest(moved) as m
      where m.series is not null and (m.after >= 30 or m.after = -1)));
  end if;
end $$;
