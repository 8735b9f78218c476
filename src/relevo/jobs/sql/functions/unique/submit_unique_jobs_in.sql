-- The same in the caller's transaction. Returns JSON: `tx`, the numbers that `relevo.submit_jobs_in` returns, and `existing`.
create or replace function relevo.submit_unique_jobs_in(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare existing jsonb;
begin
  existing := relevo.submit_unique_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options)::jsonb;
  return jsonb_build_object('existing', existing, 'tx', relevo.submission_numbers(
    (select g.id from unnest(ids) with ordinality as g (id, n) where not existing ? g.id::text order by g.n limit 1)))::text;
end $$;
