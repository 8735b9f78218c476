"""Brings a database to the schema of this program; each step is atomic and applied once.

A fresh database gets the schema as `schema.py` reads it, recorded as 0001_schema. From the first
release on, a change of tables is also a numbered file in `migrations/`: existing
databases run it, fresh ones have it in their schema already. A function whose file has changed is
created again, unless a newer Relevo has created its own; after a migration all functions are, so
that a migration may drop any that is in its way.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import time
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import asyncpg
import msgspec
from msgspec import Struct

from relevo.errors import SchemaError, SchemaTooNew
from relevo.kernel import faults
from relevo.kernel.postgres import catalog, grants
from relevo.kernel.postgres.failures import unexpected
from relevo.kernel.postgres.migration.migrations import Migration, MigrationStep, known

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from relevo.kernel.postgres.database import Database, Transaction
    from relevo.kernel.postgres.migration.schema import FunctionFile

T = TypeVar("T")
SQL = catalog.load("relevo.kernel.postgres")
MIGRATION_SECONDS_MAX: Final = 6 * 3600.0
"""The time limit of a migration, and of waiting for another process."""
LOCK_POLL_SECONDS: Final = 0.05
BOOTSTRAP = """
do $$ begin  -- who owns the schema need not be allowed to create others
  if to_regnamespace('relevo') is null then create schema relevo; end if;
end $$;
create table if not exists relevo.migration (
  version    integer primary key,
  name       text not null,
  checksum   text not null,
  program    text not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table if not exists relevo.migration_step (
  version     integer not null,
  step        text not null,
  started_at  timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  primary key (version, step)
);
create table if not exists relevo.function (
  name       text primary key,
  checksum   text not null,
  program    text not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table if not exists relevo.granted_role (
  kind text primary key,
  name text not null
);
"""


class MigrationStatus(Struct, frozen=True, kw_only=True):
    """A migration, or a changed function, and whether this database has it."""

    migration: str
    state: Literal["applied", "pending", "unknown", "changed"]
    description: str = ""
    locks: str = ""
    applied_at: datetime | None = None


class _Record(Struct, frozen=True):
    """The recorded state of a database."""

    migrations: list[asyncpg.Record]
    functions: list[asyncpg.Record]


async def _record(source: Database | Transaction) -> _Record:
    applied = await source.fetch(SQL.applied_migrations)
    if any(row["version"] == 1 and row["name"] != "schema" for row in applied):
        raise SchemaError(
            f"Relevo's schema was made by an unreleased build of Relevo ({len(applied)} numbered"
            " migrations), which no release can read; save what you need from it, then drop it with"
            " `drop schema … cascade` and run `relevo migrate up`"
        )
    return _Record(applied, await source.fetch(SQL.applied_functions))


async def status(
    database: Database, migrations: Sequence[Migration] | None = None
) -> list[MigrationStatus]:
    """Return every migration that this program or the database knows, in order."""
    everything = _everything(database, migrations)
    if not await database.fetchval(SQL.has_migrations):
        return _compare(_Record([], []), everything)
    return _compare(await _record(database), everything)


def _everything(database: Database, migrations: Sequence[Migration] | None) -> Sequence[Migration]:
    """Return the migrations with the functions as they are to be in the database's schema."""
    replace = msgspec.structs.replace
    return [
        replace(
            one, functions=tuple(replace(each, schema=database.schema) for each in one.functions)
        )
        for one in (known() if migrations is None else migrations)
    ]


def _compare(record: _Record, migrations: Sequence[Migration]) -> list[MigrationStatus]:
    rows = {row["version"]: row for row in record.migrations}
    result = []
    for migration in migrations:
        row = rows.pop(migration.version, None)
        state: Literal["applied", "pending", "changed"] = "pending"
        if row is not None:
            same = row["checksum"] == migration.checksum or _has_moved_on(migration, migrations)
            state = "applied" if same else "changed"
        result.append(
            MigrationStatus(
                migration=migration.label,
                state=state,
                description=migration.description,
                locks=migration.locks,
                applied_at=row["applied_at"] if row else None,
            )
        )
    for version, row in rows.items():
        label = f"{version:04d}_{row['name']}"
        result.append(
            MigrationStatus(migration=label, state="unknown", applied_at=row["applied_at"])
        )
    stale = _stale_functions(record, migrations) if record.functions else []
    result += [_function_status(function) for function in stale]
    return sorted(result, key=lambda status: status.migration)


def _has_moved_on(migration: Migration, migrations: Sequence[Migration]) -> bool:
    """Whether the text of the schema is newer than the database, by migrations that explain it."""
    return bool(migration.functions) and any(later.in_schema for later in migrations)


def _function_status(function: FunctionFile) -> MigrationStatus:
    return MigrationStatus(
        migration=f"functions/{function.name}",
        state="pending",
        description="the text of this function has changed",
        locks="none",
    )


def _stale_functions(record: _Record, migrations: Sequence[Migration]) -> list[FunctionFile]:
    """Return the functions that this program has to create again: not over those of a newer one."""
    ours = _version(_program())
    theirs = {row["name"]: row for row in record.functions}

    def is_stale(function: FunctionFile) -> bool:
        row = theirs.get(function.name)
        return row is None or (
            row["checksum"] != function.checksum and _version(row["program"]) <= ours
        )

    return [function for function in _functions(migrations) if is_stale(function)]


def _functions(migrations: Sequence[Migration]) -> list[FunctionFile]:
    return [function for migration in migrations for function in migration.functions]


def _program() -> str:
    return f"relevo {importlib.metadata.version('relevo')}"


def _version(program: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", program))


async def check(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Return the labels of pending steps; refuse a schema that does not match."""
    return _judge(await status(database, migrations))


def _judge(statuses: Sequence[MigrationStatus]) -> list[str]:
    named = {
        state: [s.migration for s in statuses if s.state == state]
        for state in ("unknown", "changed", "pending")
    }
    if named["unknown"]:
        raise SchemaTooNew(
            f"the database has {', '.join(named['unknown'])}, which this program does not know:"
            " it was migrated by a newer Relevo; start that version"
        )
    if named["changed"]:
        raise SchemaError(
            f"{', '.join(named['changed'])} was applied to the database with another text than this"
            " program has; a migration that has landed never changes"
        )
    return named["pending"]


async def up(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Apply pending steps and return their labels.

    Safe to run from many processes at once and to be killed at any instruction.
    """
    everything = _everything(database, migrations)
    if not await check(database, everything):
        return []
    with _telling("preparing the schema"):
        await _alone(database, _prepare)
    done = []
    for migration in everything:
        with _telling(f"migration {migration.label}"):
            if await _alone(database, partial(_apply, database, migration, everything)):
                done.append(migration.label)
    with _telling("renewing the functions"):
        return done + await _alone(database, partial(_renew_functions, database, everything))


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Add to an unexpected error the step under way, and the advice."""
    try:
        yield
    except asyncpg.PostgresError as error:
        raise SchemaError(
            f"{what} failed; only its finished steps are in the database. {unexpected(error)}"
        ) from error


async def _alone(database: Database, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run `work` in a transaction that holds the lock, once it is free.

    It asks again and again instead of standing in line: a statement that waits has a snapshot, and
    a step like CREATE INDEX CONCURRENTLY waits for every older snapshot to go.
    """

    async def locked(tx: Transaction) -> T | None:
        return await work(tx) if await tx.fetchval(SQL.lock_migrations) else None

    give_up = time.monotonic() + MIGRATION_SECONDS_MAX
    while (result := await database.run(locked, idempotent=True)) is None:
        if time.monotonic() > give_up:
            raise SchemaError(
                f"another process has been migrating for {MIGRATION_SECONDS_MAX:.0f} s; look for it"
                " in pg_stat_activity and try again when it has ended"
            )
        await asyncio.sleep(LOCK_POLL_SECONDS)
    return result


async def _prepare(tx: Transaction) -> bool:
    await tx.execute(catalog.own("postgres.bootstrap", BOOTSTRAP))
    return True


async def _apply(
    database: Database, migration: Migration, migrations: Sequence[Migration], tx: Transaction
) -> bool:
    """Apply a migration under the lock, unless it is applied already."""
    pending = _judge(_compare(await _record(tx), migrations))
    if migration.label not in pending:
        return False
    if migration.steps:
        await _apply_steps(database, tx, migration)
    else:
        await faults.point("before_migration")
        text = catalog.own(f"migration {migration.label}", migration.script or migration.text)
        await tx.execute(text, timeout=MIGRATION_SECONDS_MAX)
        await faults.point("after_migration")
    done = [migration]
    if migration.functions:
        await _record_functions(tx, migration.functions)
        done += [later for later in migrations if later.in_schema]
    else:
        await _create_functions(tx, _functions(migrations))
    for each in done:
        await tx.execute(SQL.record_migration, each.version, each.name, each.checksum, _program())
    await grants.renew(tx, database.schema)
    return True


async def _renew_functions(
    database: Database, migrations: Sequence[Migration], tx: Transaction
) -> list[str]:
    """Create the functions whose files have changed; return their labels."""
    stale = _stale_functions(await _record(tx), migrations)
    await _create_functions(tx, stale)
    if stale:
        await grants.renew(tx, database.schema)
    return [f"functions/{function.name}" for function in stale]


async def _create_functions(tx: Transaction, functions: Sequence[FunctionFile]) -> None:
    for function in functions:
        await tx.execute(catalog.own(f"function {function.name}", function.text))
    await _record_functions(tx, functions)


async def _record_functions(tx: Transaction, functions: Sequence[FunctionFile]) -> None:
    names = [function.name for function in functions]
    checksums = [function.checksum for function in functions]
    await tx.execute(SQL.record_functions, names, checksums, _program())


async def _apply_steps(database: Database, tx: Transaction, migration: Migration) -> None:
    """Run each step on a connection of its own while the transaction holds the lock."""
    rows = await tx.fetch(SQL.migration_steps, migration.version)
    state = {row["step"]: row["finished"] for row in rows}
    # What that statement leaves open holds a snapshot until the next, and a step may wait for it.
    await tx.execute(SQL.ping)
    worker = await database.endpoint.connect(command_timeout=MIGRATION_SECONDS_MAX)
    try:
        for step in migration.steps:
            if state.get(step.name):
                continue
            if step.name in state and step.undo:
                await worker.execute(_named(migration, step, step.undo))
            await _note(worker, SQL.start_step, migration, step)
            await faults.point("before_migration_step")
            await worker.execute(_named(migration, step, step.sql))
            await faults.point("after_migration_step")
            await _note(worker, SQL.finish_step, migration, step)
    finally:
        worker.terminate()


def _named(migration: Migration, step: MigrationStep, sql: str) -> str:
    return catalog.own(f"step {step.name} of migration {migration.label}", sql)


async def _note(
    worker: asyncpg.Connection, sql: str, migration: Migration, step: MigrationStep
) -> None:
    async with worker.transaction():  # for PgBouncer: a statement with arguments is two messages
        await worker.execute(sql, migration.version, step.name)
