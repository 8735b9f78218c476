-- The tenants that have all the slots that one of them may have.
create or replace function relevo.full_keys(p_limits jsonb) returns text[] language sql stable
set search_path = pg_catalog, pg_temp set jit = off as $$
  select array_agg(k.key) from jsonb_each_text(p_limits -> 'keys') as k where k.value::integer >= (p_limits ->> 'key_most')::integer;
$$;
