-- The limits of consumers after messages of an entity, of these classes and tenants, got slots.
create or replace function relevo.use_slots(p_limits jsonb, p_entity integer, p_classes smallint[], p_keys text[]) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set jit = off as $$
  select p_limits || jsonb_build_object(
    'free', (p_limits ->> 'free')::integer - cardinality(p_classes),
    'classes', coalesce((
      select jsonb_object_agg(l.key, l.value || jsonb_build_object('used', coalesce((l.value ->> 'used')::integer, 0) + (
        select count(*) from unnest(p_classes) as g (class)
        join relevo.message_class c on c.entity_id = p_entity and c.number = g.class where lower(c.name) = lower(l.key))))
      from jsonb_each(p_limits -> 'classes') as l), '{}'),
    'keys', coalesce(p_limits -> 'keys', '{}') || coalesce((
      select jsonb_object_agg(k.key, coalesce((p_limits -> 'keys' ->> k.key)::integer, 0) + k.amount)
      from (select coalesce(g.key, '') as key, count(*) as amount from unnest(p_keys) as g (key) group by 1) k), '{}'));
$$;
