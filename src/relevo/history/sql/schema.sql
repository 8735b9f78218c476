-- The history of figures: samples of all parts, which charts are made from.
-- after: actors jobs router messaging feed leases

-- The first sample of every 10 s for an hour, of every minute for a day, of every hour for 30 days.
create table relevo.figure_sample (
  step_seconds integer not null,
  at           timestamptz not null,   -- the start of its step
  figures      jsonb not null,
  primary key (step_seconds, at)
);
