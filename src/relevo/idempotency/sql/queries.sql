-- Requests with an Idempotency-Key.

-- name: begin_requests
-- Stores that requests begin, and returns what is stored of each.
select begun, fingerprint, state, age_seconds, answer from relevo.begin_requests($1, $2, $3, $4, $5, $6);

-- name: end_requests
-- Stores how requests have ended; those without a state are forgotten. Again changes nothing.
with ended as (
  select * from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bytea[]) as g (principal, key, token, state, answer)
), forgotten as (
  delete from relevo.idempotency_key k using ended e
  where k.principal = e.principal and k.key = e.key and k.token = e.token and k.state = 'running' and e.state is null
)
update relevo.idempotency_key k set state = e.state, answer = e.answer from ended e
where k.principal = e.principal and k.key = e.key and k.token = e.token and k.state = 'running' and e.state is not null;

-- name: forget_requests
-- Removes requests that are older than so many seconds.
delete from relevo.idempotency_key where (principal, key) in (
  select principal, key from relevo.idempotency_key where started_at < relevo.now() - make_interval(secs => $1)
  order by started_at limit $2)
returning 1;
