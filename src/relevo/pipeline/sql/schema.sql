-- Steps of the event pipeline, and relations between records.
-- after: postgres

-- Registered steps. Hosts write the definition at every start; operators change `enabled`.
create table relevo.pipeline_step (
  id            uuid primary key,
  name          text collate "C" not null unique,
  message       text collate "C" not null,
  table_name    text collate "C",
  stage         smallint not null check (stage in (10, 20, 40)),
  mode          smallint not null check (mode in (0, 1)),
  rank          integer not null,
  position      integer not null,   -- order of registration, which decides between equal ranks
  filtering     text[] not null default '{}',
  images        jsonb not null default '[]',
  configuration text,
  secure        bytea,              -- sealed by the master key for the step's id
  run_as        uuid,
  auto_delete   boolean not null default false,
  serialize     text,
  enabled       boolean not null default true,
  created_at    timestamptz not null default relevo.now(),
  modified_at   timestamptz not null default relevo.now(),
  switched_at   timestamptz         -- when it was last enabled or disabled
);

-- Relations between records, by the name of the relationship.
create table relevo.pipeline_association (
  relationship text collate "C" not null,
  table_name   text collate "C" not null,
  record_id    text collate "C" not null,
  other_table  text collate "C" not null,
  other_id     text collate "C" not null,
  created_at   timestamptz not null default relevo.now(),
  primary key (table_name, record_id, relationship, other_table, other_id)
);
create index pipeline_association_other on relevo.pipeline_association (other_table, other_id, relationship);
