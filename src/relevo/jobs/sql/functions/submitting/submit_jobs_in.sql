-- Submits jobs in the caller's transaction. Returns the numbers of the transaction, see `relevo.submission_numbers`.
create or replace function relevo.submit_jobs_in(
  ids uuid[], handlers text[], datas text[], names text[], tokens text[], starts timestamptz[], lanes text[],
  priorities smallint[], owners uuid[], options jsonb[])
returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  perform relevo.submit_jobs(ids, handlers, datas, names, tokens, starts, lanes, priorities, owners, options);
  return relevo.submission_numbers(ids[1]);
end $$;
