-- Stores requests that begin, in place of earlier ones that are older than so many seconds, and
-- returns for each what is stored now: its own row, or that of the earlier request with its key.
create or replace function relevo.begin_requests(
  p_principals text[], p_keys text[], p_fingerprints bytea[], p_states text[], p_tokens bigint[], p_seconds float8)
returns table (begun boolean, fingerprint bytea, state text, age_seconds float8, answer bytea) language plpgsql volatile
set search_path = pg_catalog, pg_temp set jit = off as $$
declare t timestamptz := relevo.now();
begin
  insert into relevo.idempotency_key as k (principal, key, fingerprint, state, token, started_at)
  select g.principal, g.key, g.fingerprint, g.state, g.token, t
  from unnest(p_principals, p_keys, p_fingerprints, p_states, p_tokens) as g (principal, key, fingerprint, state, token)
  order by g.principal, g.key
  on conflict (principal, key) do update set
    fingerprint = excluded.fingerprint, state = excluded.state, token = excluded.token, started_at = t, answer = null
  where k.started_at <= t - make_interval(secs => p_seconds);
  return query
  select k.token = g.token, k.fingerprint, k.state, extract(epoch from t - k.started_at)::float8, k.answer
  from unnest(p_principals, p_keys, p_tokens) with ordinality as g (principal, key, token, n)
  left join relevo.idempotency_key k on k.principal = g.principal and k.key = g.key
  order by g.n;
end $$;
