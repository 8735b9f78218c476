-- A member of the bodies of a batch of events, for its object of columns: null if no event has it, one value if all share it,
-- else an array of values. No value may be an array. It has no search path of its own, and so becomes part of the calling
-- statement, at a tenth of the cost; hence every name is qualified.
create or replace function relevo.event_column(p_name text, p_values anyarray) returns text language sql immutable as $$
  select case when pg_catalog.num_nonnulls(variadic p_values) operator(pg_catalog.>) 0 then
    pg_catalog.concat('"', p_name, '":', case
      when p_values[1] operator(pg_catalog.=) all (p_values) then pg_catalog.to_json(p_values[1])
      else pg_catalog.to_json(p_values) end) end
$$;
