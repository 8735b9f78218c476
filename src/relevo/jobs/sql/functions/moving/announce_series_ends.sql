-- Writes events for those of some series that have ended: none of their jobs waits or runs.
create or replace function relevo.announce_series_ends(ids uuid[]) returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.append_events(array_agg('relevo.series.ended'::text), array_agg(1::smallint), array_agg('series/' || s.id),
    array_agg(1::bigint), array_agg(jsonb_build_object('id', s.id)::text), pg_backend_pid())
  from unnest(ids) as s (id)
  where not exists (select from relevo.job j where j.series = s.id and not j.deleted)
  having count(*) > 0;
end $$;
