-- The limits of consumers after one more message got a slot.
create or replace function relevo.use_slot(p_limits jsonb, p_entity integer, p_class smallint, p_key text) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set jit = off as $$
  select p_limits || jsonb_build_object(
    'free', (p_limits ->> 'free')::integer - 1,
    'classes', coalesce((
      select jsonb_object_agg(l.key, case when lower(l.key) = lower(c.name)
        then l.value || jsonb_build_object('used', coalesce((l.value ->> 'used')::integer, 0) + 1) else l.value end)
      from jsonb_each(p_limits -> 'classes') as l), '{}'),
    'keys', coalesce(p_limits -> 'keys', '{}') || jsonb_build_object(
      coalesce(p_key, ''), coalesce((p_limits -> 'keys' ->> coalesce(p_key, ''))::integer, 0) + 1))
  from relevo.message_class c where c.entity_id = p_entity and c.number = p_class;
$$;
