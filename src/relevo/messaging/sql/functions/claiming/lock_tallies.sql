-- Locks what a claim over several sources will write, in the order that all keep to: the rows of consumers, then the tallies of
-- entities where the claim has a choice to remember. A claim from a single source locks its tally by itself.
create or replace function relevo.lock_tallies(p_consumers integer[], p_entities integer[]) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if cardinality(p_entities) < 2 then return; end if;
  perform from relevo.message_consumers c where c.id = any (p_consumers) and cardinality(c.sources) > 1 order by c.id for no key update;
  perform relevo.lock_tally(e.id) from (
    select e.id from relevo.message_entity e
    where e.id = any (p_entities) and (e.fair or (e.policy = 'weighted' or e.policy = 'aging' and e.floor_patience is not null) and 1 < (
      select count(*) from relevo.message_class c cross join lateral (
        select from relevo.message m where m.entity_id = e.id and m.sub_queue = 0 and m.class = c.number and m.state = 0
        order by m.rank, m.sequence limit 1) m
      where c.entity_id = e.id))
    order by e.id) e;
end $$;
