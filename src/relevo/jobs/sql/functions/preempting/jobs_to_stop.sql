-- Running jobs of a host, with their priority and how often they have made room; they become rows, so that they can be marked.
create or replace function relevo.jobs_to_stop(p_host uuid, ids uuid[])
returns table (id uuid, priority smallint, preempted integer) language plpgsql volatile set enable_seqscan = off
set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  perform relevo.unpack_jobs(ids);
  return query
  select j.id, j.priority, coalesce((j.details -> 'preempted')::integer, 0)
  from relevo.job j where j.id = any (ids) and j.host = p_host and j.status = 20;
end $$;
