-- Follow-ups of claimed rows: inserts the next waiting row of a series; writes start events of lanes with events = 'all' and of platform jobs.
create or replace function relevo.after_job_claims(p_host uuid, p_claim bigint) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare at timestamptz := relevo.now();
begin
  if exists (select from relevo.job j where j.host = p_host and j.claim = p_claim and j.series is not null) then
    perform set_config('synchronous_commit', 'on', true);
    insert into relevo.job (
      id, rank, created_at, modified_at, status, postpone_until, priority, operation_type, lane, handler, name, data, token,
      owner, created_by, modified_by, retain, auto_delete, system, hold, depth, correlation, correlation_at, extension,
      message_name, regarding_type, regarding_id, series, pattern, anchor, zone, nominal, details)
    select m.id, 0, at, at, 10, g.next_at, g.priority, g.operation_type, g.lane, g.handler, g.name, g.data, g.token,
      g.owner, g.created_by, g.modified_by, g.retain, g.auto_delete, g.system, g.hold, 1, m.id, at, g.extension,
      g.message_name, g.regarding_type, g.regarding_id, g.series, g.pattern, g.anchor, g.zone, g.next_at,
      (g.details - '{deferred_since,traceparent}'::text[]) || jsonb_build_object('ordinal', g.details -> 'next_ordinal')
    from relevo.job g cross join lateral (select relevo.uuid7() as id where g.id is not null) as m
    where g.host = p_host and g.claim = p_claim and g.series is not null and g.attempt = 1 and g.next_at is not null;
  end if;
  if exists (select from relevo.job j join relevo.job_lane l on l.name = j.lane
             where j.host = p_host and j.claim = p_claim and (l.events = 'all' or j.system)) then
    perform relevo.announce_claims(p_host, p_claim);
  end if;
end $$;
