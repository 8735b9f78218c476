-- Locks what a claim over several sources may write, in the order that all keep to: the rows of consumers, then the tallies of
-- entities that remember choices, also where there is none now: one may come up before the claim gets there, and its tally would
-- be locked out of order. A claim from a single source locks its tally by itself.
create or replace function relevo.lock_tallies(p_consumers integer[], p_entities integer[]) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if cardinality(p_entities) < 2 then return; end if;
  perform from relevo.message_consumers c where c.id = any (p_consumers) and cardinality(c.sources) > 1 order by c.id for no key update;
  perform relevo.lock_tally(e.id) from (
    select e.id from relevo.message_entity e
    where e.id = any (p_entities) and (e.fair or e.policy = 'weighted' or e.policy = 'aging' and e.floor_patience is not null)
    order by e.id) e;
end $$;
