-- Writes different items in the caller's transaction, in the order of keys; see `relevo.put_row`.
-- Answers one row per given row. If one of several is refused, the caller has to roll back.
-- Plans are made once: planned for each array of keys, they would cost more than the writes.
create or replace function relevo.put_rows(
  container integer, kinds text[], pks text[], ids text[], epks text[], bodies text[],
  conditions text[], ttls integer[])
returns table (n bigint, outcome text, written_ordinal integer, written_ts timestamptz)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  home relevo.container;
  given record;
  done record;
  ordinal_before constant integer := coalesce(nullif(current_setting('relevo.ordinal', true), '')::integer, 0);
begin
  select * into home from relevo.container c where c.id = put_rows.container;
  if not found then
    raise exception 'the container was dropped meanwhile' using errcode = 'RV002';
  end if;
  perform set_config('relevo.ordinal', (ordinal_before + 2 * cardinality(kinds))::text, true);
  for given in
    select g.* from unnest(kinds, pks, ids, epks, bodies, conditions, ttls)
      with ordinality as g (kind, pk, id, epk, body, condition, ttl, n)
    order by g.pk collate "C", g.id collate "C"
  loop
    n := given.n;
    written_ordinal := ordinal_before + 2 * n;
    done := relevo.put_row(home, given.kind, given.pk, given.id, given.epk, given.body::jsonb,
                           given.condition, given.ttl, written_ordinal);
    outcome := done.outcome;
    written_ts := done.written_ts;
    return next;
  end loop;
end $$;
