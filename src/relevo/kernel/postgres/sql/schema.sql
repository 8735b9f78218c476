-- The clock, shared settings, and functions that every part uses.

-- One clock for every decision. `shift` is what tests travel by and what a failover to a
-- server whose clock is behind adds; `mark` is the latest instant that was handed out, at most a
-- second old while a host runs.
create table relevo.clock (
  one   boolean primary key default true check (one),
  shift interval not null default '0',
  mark  timestamptz not null default '-infinity'
) with (fillfactor = 10);
insert into relevo.clock default values;

\ir functions/now.sql
\ir functions/uuid7.sql

create table relevo.setting (
  key        text primary key,
  value      jsonb not null,
  updated_at timestamptz not null default relevo.now()
);
