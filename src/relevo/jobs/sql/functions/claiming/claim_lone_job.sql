-- Claims a job that must run alone, for a host that begins nothing else meanwhile. `p_alone`: the host runs nothing else,
-- so that a crash is this job's fault.
create or replace function relevo.claim_lone_job(
  p_host uuid, p_name text, p_claim bigint, handler_lanes text[], handlers text[], p_alone boolean)
returns setof relevo.job_notice language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  at timestamptz := relevo.now();
  chosen record;
begin
  if not exists (select from relevo.host h where h.incarnation = p_host and h.ended_at is null) then return; end if;
  select j.id, j.ctid as place, j.lane, h.lane as served_in into chosen
  from relevo.job j join unnest(handler_lanes, handlers) as h (lane, handler) on h.handler = j.handler
  where j.id = any (relevo.lone_jobs(claim_lone_job.handlers)) and j.alone and j.status = 0 and not j.chained and not j.capped
  order by j.rank, j.sequence limit 1 for update of j skip locked;
  if not found then return; end if;
  if chosen.lane <> chosen.served_in then
    perform relevo.move_into_lanes(array[chosen.place], array[chosen.served_in]);
  end if;
  return query
  update relevo.job j set
    status = 20, host = p_host, host_name = p_name, claim = p_claim, attempt = j.attempt + 1, alone = p_alone,
    started_at = coalesce(j.started_at, at), modified_at = at, version = j.version + 1, friendly = null
  where j.id = chosen.id and j.status = 0 and not j.chained and not j.capped  -- by the rules of its lane
  returning 'claimed', j.id, null::smallint, j.claim, j.lane, j.handler, j.name, j.data, j.attempt, j.operation_type,
    date_part('epoch', j.created_at), relevo.job_particulars(j), null::uuid[], null::text[];
  perform relevo.after_job_claims(p_host, p_claim);
end $$;
