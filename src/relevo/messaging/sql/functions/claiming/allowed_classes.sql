-- The classes of an entity whose messages may have a slot, as `relevo.messaging.core.reserving.Slots.obstacle` says.
create or replace function relevo.allowed_classes(p_entity integer, p_limits jsonb) returns smallint[] language sql stable
set search_path = pg_catalog, pg_temp set jit = off as $$
  with slot as materialized (
    select lower(l.key) as name, (l.value ->> 'base')::integer as base, coalesce((l.value ->> 'used')::integer, 0) as used,
      coalesce((l.value ->> 'reserved')::integer, 0) as reserved, (l.value ->> 'most')::integer as most
    from jsonb_each(coalesce(p_limits -> 'classes', '{}')) as l)
  select array(
    select c.number from relevo.message_class c left join slot s on s.name = lower(c.name)
    where c.entity_id = p_entity and (s.most is null or s.used < s.most)
      and (p_limits ->> 'free')::integer > (
        select coalesce(sum(greatest(0, o.reserved - o.used)), 0) from slot o where o.base > c.base));
$$;
