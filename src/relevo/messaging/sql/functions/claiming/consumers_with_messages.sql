-- The consumers of a host that are not paused and have a message to claim in one of their sources.
create or replace function relevo.consumers_with_messages(p_host uuid, p_consumers integer[], p_sources integer[]) returns setof integer
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return query
    select distinct c.id from unnest(p_consumers, p_sources) as s (of, entity)
    join relevo.message_consumers c on c.id = s.of
    where not (c.state = 'paused' and (c.until is null or c.until > relevo.now()))
      and (relevo.has_claimable(s.entity, 0::smallint, null, p_host)
        or exists (select from relevo.message_arrival a where a.entity_id = s.entity));
end $$;
