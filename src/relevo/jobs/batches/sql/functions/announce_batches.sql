-- Writes an event of each of some batches; the last thing of its transaction, as all events.
create or replace function relevo.announce_batches(ids uuid[], kind text) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.append_events(array_agg('relevo.batch.' || kind), array_agg(1::smallint), array_agg('batch/' || b.id),
    array_agg(b.version), array_agg(jsonb_strip_nulls(jsonb_build_object('id', b.id, 'name', b.name, 'total', b.total,
      'succeeded', b.succeeded, 'failed', b.failed, 'canceled', b.canceled, 'callback', b.callback))::text), pg_backend_pid())
  from (select * from relevo.job_batch x where x.id = any (ids) order by x.id) b
  having count(*) > 0;
end $$;
