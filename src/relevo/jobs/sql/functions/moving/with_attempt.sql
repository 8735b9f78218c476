-- The attempts of a job with one more that failed, or whose host was lost: the last 20, and of each text the last 4,000 characters,
-- where the error is.
create or replace function relevo.with_attempt(
  attempts jsonb, event text, attempt integer, host text, at timestamptz, seconds float8, error integer, told text)
returns jsonb language sql stable
return jsonb_path_query_array(
  coalesce(attempts, '[]') || jsonb_strip_nulls(jsonb_build_object(
    'attempt', attempt, 'outcome', case event when 'retry' then 'failed' when 'fail' then 'failed' else 'lost' end, 'host', host,
    'started_at', at - make_interval(secs => seconds), 'ended_at', at, 'error_code', error, 'message', right(told, 4000))),
  '$[last - 19 to last]');
