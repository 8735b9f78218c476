-- The statuses in which a first job keeps others away, from the words of a submit. Without words: as long as it has not ended,
-- or, within a window, unless it failed or was canceled.
create or replace function relevo.unique_statuses(asked jsonb) returns smallint[] language plpgsql immutable
set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  words text[] := case when jsonb_typeof(asked -> 'states') = 'array' then array(select jsonb_array_elements_text(asked -> 'states'))
    when asked ->> 'window' is null then '{waiting,running}' else '{waiting,running,succeeded}' end;
begin
  if not words <@ array['waiting', 'running', 'succeeded', 'failed', 'canceled'] or words = '{}' then
    raise exception 'states of a unique job are waiting, running, succeeded, failed, canceled, not %', words using errcode = 'RV011';
  end if;
  if asked ->> 'window' is null and words && array['succeeded', 'failed', 'canceled'] then
    raise exception 'a unique job with ended states needs a window in seconds' using errcode = 'RV011';
  end if;
  return array(
    select s.status from unnest(words) as w (word) join (values
      ('waiting', 0::smallint), ('waiting', 10::smallint), ('running', 20::smallint), ('running', 21::smallint), ('running', 22::smallint),
      ('succeeded', 30::smallint), ('failed', 31::smallint), ('canceled', 32::smallint)) as s (word, status) on s.word = w.word);
end $$;
