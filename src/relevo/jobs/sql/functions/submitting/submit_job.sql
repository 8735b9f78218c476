-- Submits one job; any language may call it inside its own transaction. It sends no wake-up: hosts poll four times a
-- second. It runs as the schema's owner, so that a role that may call it needs no right to read jobs.
-- With `unique` in its options it returns the job that has its key, if there is one.
create or replace function relevo.submit_job(
  handler text, data jsonb default '{}', token text default null, start timestamptz default null,
  lane text default null, priority integer default null, name text default null, owner uuid default null,
  options jsonb default null)
returns uuid language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
declare made uuid := relevo.uuid7();
begin
  if coalesce(handler, '') = '' or length(handler) > 256 or length(name) > 256 or length(token) > 256 then
    raise exception 'a job names its handler; handler, name and token have at most 256 characters'
      using errcode = 'RV011';
  end if;
  if options ? 'unique' then
    return coalesce((relevo.submit_unique_jobs(array[made], array[handler], array[coalesce(data, '{}')::text], array[name], array[token],
      array[start], array[lane], array[priority::smallint], array[owner], array[options])::jsonb ->> made::text)::uuid, made);
  end if;
  perform relevo.submit_jobs(array[made], array[handler], array[coalesce(data, '{}')::text], array[name], array[token],
    array[start], array[lane], array[priority::smallint], array[owner], array[options]);
  return made;
end $$;
