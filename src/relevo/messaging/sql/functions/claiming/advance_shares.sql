-- Stores the virtual times of classes with work after a claim, and carries the other classes along (`p_least`), so that idle
-- time is not saved up. The caller has locked the row.
create or replace function relevo.advance_shares(p_entity integer, p_numbers smallint[], p_vtimes bigint[], p_least bigint) returns void
language sql volatile set search_path = pg_catalog, pg_temp set jit = off as $$
  update relevo.message_tally t set (numbers, vtimes, tags) = (
    select array_agg(c.number order by c.number),
      array_agg(greatest(coalesce(a.vtime, v.vtime), p_least) order by c.number),
      array_agg(v.tag order by c.number)
    from relevo.message_class c
    left join unnest(p_numbers, p_vtimes) as a (number, vtime) on a.number = c.number
    left join unnest(t.numbers, t.vtimes, t.tags) as v (number, vtime, tag) on v.number = c.number
    where c.entity_id = p_entity)
  where t.entity_id = p_entity;
$$;
