-- An entity that is fair between tenants, remembers as many of them as it may, and would get another; as of the last folding of
-- counters, a second ago. Only of an entity that has so many are the tenants looked up.
create or replace function relevo.full_of_keys(
  p_of integer[], p_places integer[], p_sub_queues smallint[], p_classes smallint[], p_keys text[], p_most integer default 100000)
returns integer language plpgsql stable
set enable_nestloop = on set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  full_entities integer[] := array(
    select e.id from relevo.message_entity e
    where e.id = any (p_places) and e.fair
      and p_most <= (select coalesce(sum(c.fairness_keys), 0) from relevo.message_count c where c.entity_id = e.id and c.sub_queue = 0));
begin
  if full_entities = '{}' then return null; end if;
  return (
    select c.place from unnest(p_of, p_places, p_sub_queues, p_classes, p_keys) as c (of, place, sub_queue, class, key)
    where c.of is not null and c.sub_queue = 0 and c.place = any (full_entities) and not exists (
      select from relevo.message_fairness f where f.entity_id = c.place and f.class = c.class and f.key = coalesce(c.key, ''))
    limit 1);
end $$;
