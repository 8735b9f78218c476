-- Notes a failed attempt at an occurrence of a reminder, as `relevo.fail_actor_message` does at a message.
create or replace function relevo.fail_actor_reminder(
  p_lease integer, p_epoch bigint, p_actor text, p_name text, p_due timestamptz, p_attempt integer, p_error text, p_delay float8)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from relevo.stale_fences(array[p_lease], array[p_epoch])) then
    return 'stale';
  end if;
  update relevo.actor_reminder set
    attempt = p_attempt + 1, error = p_error, crashes = null, begun_epoch = null,
    retry_at = case when p_delay is not null then relevo.now() + make_interval(secs => p_delay) end,
    dead_at = case when p_delay is null then relevo.now() end
  where actor = p_actor and name = p_name and due = p_due and attempt = p_attempt and dead_at is null;
  return case when found then 'noted' else 'gone' end;
end $$;
