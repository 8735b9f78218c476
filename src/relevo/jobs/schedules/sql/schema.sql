-- Schedules that handlers declare, by the name of the handler.
-- after: jobs

create table relevo.job_schedule (
  name         text collate "C" primary key,
  recurrence   text not null,               -- as the handler declares it, in JSON, with its lane and priority
  series       uuid not null,               -- the series of its runs; its waiting row says when the next one is
  anchor       timestamptz not null,        -- where the series begins
  token        text,                        -- that its runs have
  declared_at  timestamptz not null default relevo.now(),
  paused_at    timestamptz,
  paused_until timestamptz                  -- null: until it is resumed
);
