-- Records the largest tags that a claim takes, by class, at an entity that is fair between tenants. The caller has locked the row.
create or replace function relevo.reach_tags(p_entity integer, p_places tid[]) returns void language sql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp set jit = off as $$
  update relevo.message_tally t set (numbers, vtimes, tags) = (
    select array_agg(c.number order by c.number), array_agg(v.vtime order by c.number),
      array_agg(greatest(v.tag, r.tag) order by c.number)
    from relevo.message_class c
    left join (select m.class, max(m.rank) as tag from unnest(p_places) as p (place) join relevo.message m on m.ctid = p.place group by m.class) r
      on r.class = c.number
    left join unnest(t.numbers, t.vtimes, t.tags) as v (number, vtime, tag) on v.number = c.number
    where c.entity_id = p_entity)
  where t.entity_id = p_entity;
$$;
