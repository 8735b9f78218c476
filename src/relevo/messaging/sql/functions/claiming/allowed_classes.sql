-- The classes of an entity whose messages may have a slot, as `relevo.messaging.core.reserving.Slots.obstacle` says; also how many
-- messages may be taken, whatever they are, before that can change.
create or replace function relevo.allowed_classes(
  p_entity integer, p_limits jsonb, out classes smallint[], out room integer) language sql stable
set search_path = pg_catalog, pg_temp set jit = off as $$
  with slot as materialized (
    select lower(l.key) as name, (l.value ->> 'base')::integer as base, coalesce((l.value ->> 'used')::integer, 0) as used,
      coalesce((l.value ->> 'reserved')::integer, 0) as reserved, (l.value ->> 'most')::integer as most
    from jsonb_each(coalesce(p_limits -> 'classes', '{}')) as l
  ), room as (
    select c.number, least(s.most - s.used, (p_limits ->> 'free')::integer - (
        select coalesce(sum(greatest(0, o.reserved - o.used)), 0) from slot o where o.base > c.base)) as messages
    from relevo.message_class c left join slot s on s.name = lower(c.name)
    where c.entity_id = p_entity
  )
  select coalesce(array_agg(r.number), '{}'), least(min(r.messages), (p_limits ->> 'key_most')::integer - (
    select max(k.value::integer) from jsonb_each_text(p_limits -> 'keys') as k where k.value::integer < (p_limits ->> 'key_most')::integer),
    (p_limits ->> 'key_most')::integer)
  from room r where r.messages > 0;
$$;
