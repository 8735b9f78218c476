-- What distinguishes unique jobs: the handler, and a given key, some fields of the data, or all of it.
create or replace function relevo.unique_job_key(handler text, data text, asked jsonb) returns bytea language sql immutable
set search_path = pg_catalog, pg_temp
return sha256(convert_to(case
  when asked ->> 'key' is not null then jsonb_build_array(handler, 'key', asked -> 'key')
  when jsonb_typeof(asked -> 'fields') = 'array' then jsonb_build_array(handler, 'fields', asked -> 'fields',
    (select jsonb_agg(data::jsonb -> f.name order by f.n) from jsonb_array_elements_text(asked -> 'fields') with ordinality as f (name, n)))
  else jsonb_build_array(handler, 'data', data::jsonb) end::text, 'UTF8'));
