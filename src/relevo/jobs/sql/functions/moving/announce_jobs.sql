-- Writes events of jobs, up to 250 in a batch. The locks of the event log come last in every transaction.
create or replace function relevo.announce_jobs(
  ids uuid[], versions bigint[], kinds text[], befores smallint[], afters smallint[], names text[], lanes text[],
  types integer[], attempts integer[], hosts text[], errors integer[], created timestamptz[], started timestamptz[])
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  first integer;
  last integer;
begin
  for first in 1 .. coalesce(cardinality(ids), 0) by 250 loop
    last := first + 249;
    perform relevo.append_events(
      case when e.kinds[1] = all (e.kinds) then array['relevo.job.' || e.kinds[1]]
           else array(select 'relevo.job.' || k from unnest(e.kinds) as k) end,
      array[1::smallint], array(select 'job/' || i from unnest(e.ids) as i), versions[first:last], null, pg_backend_pid(),
      '{' || concat_ws(',',  -- which leaves out what is null
        relevo.event_column('id', e.ids), relevo.event_column('name', e.names), relevo.event_column('lane', e.lanes),
        relevo.event_column('operationType', e.types), relevo.event_column('before', e.befores),
        relevo.event_column('after', e.afters), relevo.event_column('attempt', e.attempts),
        relevo.event_column('host', e.hosts), relevo.event_column('errorCode', e.errors),
        relevo.event_column('createdOn', e.created), relevo.event_column('startedOn', e.started)) || '}')
    from (
      select ids[first:last] as ids, kinds[first:last] as kinds, befores[first:last] as befores, afters[first:last] as afters,
             names[first:last] as names, lanes[first:last] as lanes, types[first:last] as types,
             attempts[first:last] as attempts, hosts[first:last] as hosts, errors[first:last] as errors,
             created[first:last] as created, started[first:last] as started offset 0) e;
  end loop;
end $$;
