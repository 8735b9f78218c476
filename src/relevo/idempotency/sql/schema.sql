-- Requests with an Idempotency-Key.
-- after: postgres

-- A row is stored before its request runs. It stays `running` if the host was killed meanwhile.
create table relevo.idempotency_key (
  principal   text not null,
  key         text not null,
  fingerprint bytea not null,  -- of operation, path and body
  state       text not null check (state in ('running', 'answered', 'too_large', 'unknown', 'own')),
  token       bigint not null,  -- of the request that runs
  started_at  timestamptz not null default relevo.now(),
  answer      bytea,  -- sealed: it may show secrets
  primary key (principal, key),
  check ((state = 'answered') = (answer is not null))
);
create index idempotency_key_started on relevo.idempotency_key (started_at);
