-- name: lock_migrations
-- Whether we may migrate, as one process at a time; a migrator that sleeps for an hour is ended.
select pg_try_advisory_xact_lock(1380273153, 0), set_config('idle_in_transaction_session_timeout', '1h', true);

-- name: applied_migrations
-- The applied migrations, with the checksums of their files.
select version, name, checksum, applied_at from relevo.migration order by version;

-- name: has_migrations
-- Whether Relevo was ever here.
select to_regclass('relevo.migration') is not null;

-- name: record_migration
-- The last statement of a migration's transaction: done, by which program, from which text.
insert into relevo.migration (version, name, checksum, program) values ($1, $2, $3, $4);

-- name: applied_functions
-- Which text each function has, and which program applied it.
select name, checksum, program from relevo.function;

-- name: record_functions
-- The texts of functions that were just created.
insert into relevo.function (name, checksum, program)
select g.name, g.checksum, $3 from unnest($1::text[], $2::text[]) as g (name, checksum)
on conflict (name) do update
set checksum = excluded.checksum, program = excluded.program, applied_at = clock_timestamp();

-- name: migration_steps
-- How far a migration that cannot run in a transaction has come.
select step, finished_at is not null as finished from relevo.migration_step where version = $1;

-- name: start_step
-- Notes that a step was begun, so that a killed one is undone before it is done again.
insert into relevo.migration_step (version, step) values ($1, $2)
on conflict (version, step) do update set started_at = clock_timestamp();

-- name: finish_step
-- Notes that a step was done.
update relevo.migration_step set finished_at = clock_timestamp() where version = $1 and step = $2;

-- name: raise_mark
-- Makes time that was handed out stick, and if the server's clock fell behind it, moves on from there.
with before as (select shift from relevo.clock for update)
update relevo.clock c set
  shift = c.shift + greatest(greatest(c.mark, clock_timestamp() + c.shift)
                             - (clock_timestamp() + c.shift), '0'),
  mark = greatest(c.mark, clock_timestamp() + c.shift)
from before
returning extract(epoch from c.shift)::float8 as shift,
          extract(epoch from c.shift - before.shift)::float8 as added;

-- name: read_clock
-- The store's time, the server's own, and how far they are apart.
select relevo.now() as now, clock_timestamp() as server_clock, extract(epoch from shift)::float8 as shift
from relevo.clock;

-- name: keep_mark
-- Makes time that was handed out stick; whether it has to be moved on for that.
select relevo.keep_mark() as behind;

-- name: notify
-- A wake-up for other processes, in a commit of its own; there is nothing to wait for the disk for.
select set_config('synchronous_commit', 'off', true), pg_notify('relevo', $1);

-- name: end_sleepers
-- Ends sessions whose client fell asleep within a statement: they wait for the rest of it, and hold
-- a lock of Relevo's, or one that another session waits for.
select s.pid, s.query, pg_terminate_backend(s.pid) as ended
from pg_stat_activity s
where s.datname = current_database() and s.state = 'active' and s.wait_event = 'ClientRead'
  and s.state_change < clock_timestamp() - make_interval(secs => $1)
  and (exists (select from pg_locks l where l.pid = s.pid and l.locktype = 'advisory' and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and l.objsubid = 2 and l.classid::bigint between $2 and $3)
    or s.application_name = $4 and s.pid in (
         select unnest(pg_blocking_pids(w.pid)) from pg_stat_activity w
         where w.datname = current_database() and w.wait_event_type = 'Lock'));

-- name: now
-- The time by which Relevo decides.
select relevo.now();

-- name: backend_pid
-- Which server process answers: through a pooler it is another than was announced.
select pg_backend_pid();

-- name: ping
-- Whether the server answers.
select 1;

-- name: limit_query
-- Bounds the rest of the transaction: milliseconds per statement and, if the role may set it, kilobytes of temporary files.
select set_config('statement_timeout', $1, true),
       case when has_parameter_privilege('temp_file_limit', 'set') then set_config('temp_file_limit', $2, true) end;

-- name: recognise_database
-- Whether the database was restored or copied since hosts served it; see the function.
select relevo.recognise_database($1);

-- name: served_database
-- Whether this is the database that hosts have served so far, and when it was restored last.
select relevo.is_served_database() as is_served,
       (select (s.value ->> 'restored_at')::timestamptz from relevo.setting s where s.key = 'database') as restored_at;

-- name: schema_facts
-- Who owns the schema, whether it has its tables, which views are for reports, and which of some roles exist.
select pg_get_userbyid(n.nspowner) as owner,
  exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'setting') as is_filled,
  array(select c.relname::text from pg_class c
        where c.relnamespace = n.oid and c.relkind = 'v' and c.relname like 'report\_%' order by 1) as views,
  array(select r.rolname::text from pg_roles r where r.rolname = any ($1::text[])) as roles
from (select) as one left join pg_namespace n on n.nspname = 'relevo';

-- name: recorded_roles
-- The roles that `relevo grants` gave rights to, by kind.
select kind, name from relevo.granted_role;
