-- The counts of `message_rate` so many seconds later, with so many messages more.
create or replace function relevo.faded_counts(p_counts float8[], p_seconds float8, p_more float8) returns float8[]
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select array_agg(case when c.count > 0.001 then c.count * exp(-least(50, greatest(0, p_seconds) / c.over)) else 0 end + p_more order by c.over)
  from unnest(p_counts, array[60, 300, 900]::float8[]) as c (count, over);
$$;
