-- Stores checkpoints of handlers, and returns the status of their jobs.
create or replace function relevo.checkpoint_jobs(p_host uuid, ids uuid[], claims bigint[], progresses real[], saves text[])
returns table (id uuid, status smallint, deleted boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  perform relevo.unpack_jobs(ids);
  return query
  update relevo.job j set progress = coalesce(c.progress, j.progress), saved = coalesce(c.saved, j.saved),
    version = j.version + 1, modified_at = relevo.now()
  from unnest(ids, claims, progresses, saves) as c (id, claim, progress, saved)
  where j.id = c.id and j.host = p_host and j.claim = c.claim
  returning j.id, j.status, j.deleted;
end $$;
