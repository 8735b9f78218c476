-- What operators and keys have changed.
-- after: events

-- A row is stored before its operation runs, and has no outcome if the host was killed meanwhile.
create table relevo.audit (
  id        bigint generated always as identity primary key,
  at        timestamptz not null default relevo.now(),
  by_id     text not null,
  by_name   text not null,
  operation text not null,
  resource  text not null,
  reason    text,
  caller    text check (caller = 'agent'),  -- null: a person or a program of theirs
  outcome   text,
  ended_at  timestamptz,
  check ((outcome is null) = (ended_at is null))
) with (fillfactor = 80);
create index audit_by on relevo.audit (by_id, id);
create index audit_resource on relevo.audit (resource text_pattern_ops, id);

-- For reports: the audit without reasons, which are free text.
create view relevo.report_audit as
  select id, at, by_id, by_name, caller, operation, resource, outcome, ended_at from relevo.audit;
