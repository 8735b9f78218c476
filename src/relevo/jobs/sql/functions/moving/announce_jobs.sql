-- Writes events of jobs. The locks of the event log come last in every transaction.
create or replace function relevo.announce_jobs(
  ids uuid[], versions bigint[], kinds text[], befores smallint[], afters smallint[], names text[], lanes text[],
  types integer[], attempts integer[], hosts text[], errors integer[], created timestamptz[], started timestamptz[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if ids is null then return; end if;
  perform relevo.append_events(
    array_agg('relevo.job.' || e.kind), array_agg(1::smallint), array_agg('job/' || e.id), array_agg(e.version),
    array_agg('{' || concat_ws(',',  -- which leaves out what is null
      '"id":"' || e.id || '"', '"name":' || to_json(e.name), '"lane":' || to_json(e.lane), '"operationType":' || e.type,
      '"before":' || e.before, '"after":' || e.after, '"attempt":' || e.attempt, '"host":' || to_json(e.host),
      '"errorCode":' || e.error, '"createdOn":' || to_json(e.created), '"startedOn":' || to_json(e.started)) || '}'),
    pg_backend_pid())
  from unnest(ids, versions, kinds, befores, afters, names, lanes, types, attempts, hosts, errors, created, started)
    as e (id, version, kind, before, after, name, lane, type, attempt, host, error, created, started);
end $$;
