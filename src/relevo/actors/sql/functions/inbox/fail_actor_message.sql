-- Notes a failed attempt at a message under the fence of its slot: the next one is due after so many seconds, or, without
-- them, it is dead. Returns noted, stale, or gone if another attempt was noted since, also by a call of which this is a repeat.
create or replace function relevo.fail_actor_message(
  p_lease integer, p_epoch bigint, p_number bigint, p_attempt integer, p_error text, p_delay float8)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from relevo.stale_fences(array[p_lease], array[p_epoch])) then
    return 'stale';
  end if;
  update relevo.actor_message set
    attempt = p_attempt + 1, error = p_error, crashes = null, begun_epoch = null,
    due = case when p_delay is not null then relevo.now() + make_interval(secs => p_delay) end,
    dead_at = case when p_delay is null then relevo.now() end
  where number = p_number and attempt = p_attempt and dead_at is null;
  return case when found then 'noted' else 'gone' end;
end $$;
