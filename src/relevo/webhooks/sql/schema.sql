-- Webhooks, their secrets, and what is to be sent to them.
-- after: events

-- `since` is the instant from which on events are sent. `revision` grows with every change of what decides which events are sent.
-- `failures` counts failed attempts since the last success. An endpoint in Event Grid's form is `validating` until it has answered
-- the validation event.
create table relevo.webhook (
  id               uuid primary key default relevo.uuid7(),
  name             text collate "C" not null unique,
  url              text not null,
  format           text not null check (format in ('cloudevents', 'eventgrid')),
  types            text[] not null,
  filter           text,
  retry            double precision[] not null,
  state            text not null check (state in ('validating', 'enabled', 'paused', 'disabled')),
  reason           text,
  since            timestamptz not null,
  revision         integer not null default 1,
  created_at       timestamptz not null default relevo.now(),
  changed_at       timestamptz not null default relevo.now(),
  validation_code  uuid,
  validation_until timestamptz,
  failures         integer not null default 0,
  failing_since    timestamptz,
  last_attempt_at  timestamptz,
  last_success_at  timestamptz,
  last_error       text,
  check ((state = 'validating') <= (validation_code is not null))
) with (fillfactor = 50);

-- The secrets by which deliveries are signed: several while one replaces another.
create table relevo.webhook_secret (
  id         uuid primary key default relevo.uuid7(),
  webhook_id uuid not null references relevo.webhook on delete cascade,
  sealed     bytea not null,
  created_at timestamptz not null default relevo.now(),
  expires_at timestamptz
);
create index webhook_secret_webhook on relevo.webhook_secret (webhook_id);

-- An event for a webhook. Those of one subject are sent by LSN. A delivered one is kept for a while, to be looked at and replayed.
create table relevo.webhook_delivery (
  id              bigint generated always as identity primary key,
  webhook_id      uuid not null references relevo.webhook on delete cascade,
  event_id        text collate "C" not null,
  stripe          integer not null,
  lsn             bigint not null,
  at              timestamptz not null,
  type            text collate "C" not null,
  schema          smallint not null,
  subject         text collate "C" not null,
  version         bigint not null,
  data            text not null,
  state           text not null default 'waiting' check (state in ('waiting', 'delivered', 'dead')),
  attempts        integer not null default 0,
  due             timestamptz not null default relevo.now(),
  last_attempt_at timestamptz,
  status          integer,
  error           text,
  unique (webhook_id, lsn)
);
create index webhook_delivery_waiting on relevo.webhook_delivery (webhook_id, lsn) where state = 'waiting';
create index webhook_delivery_subject on relevo.webhook_delivery (webhook_id, subject, lsn) where state = 'waiting';
create index webhook_delivery_done on relevo.webhook_delivery (webhook_id, state, id) where state <> 'waiting';

-- For reports: webhooks without their addresses.
create view relevo.report_webhook as
  select name, format, types, state, reason, since, failures, failing_since, last_success_at from relevo.webhook;
