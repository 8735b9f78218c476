"""Numbered SQL files become the schema; each is applied once, whole, or not at all.

A file begins with comments: `-- description: …`, `-- locks: …`, and `-- kind: steps` if it holds
statements that PostgreSQL refuses inside a transaction. Such a file is a list of sections
`-- step: name`, each with one statement and, if a killed attempt leaves something behind, a line
`-- undo: statement` that is run before the step is tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.resources
import re
import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo import faults
from relevo.errors import SchemaError, SchemaTooNew
from relevo.postgres import catalog, locks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import asyncpg

    from relevo.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
MIGRATION_SECONDS_MAX: Final = 6 * 3600.0
"""For one migration, and for waiting until another process has done its part."""
LOCK_POLL_SECONDS: Final = 0.05
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_BOOTSTRAP = """
create schema if not exists relevo;
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
"""


class Step(Struct, frozen=True):
    """One statement that runs outside of a transaction, and how to clear up a killed attempt."""

    name: str
    sql: str
    undo: str | None


class Migration(Struct, frozen=True, kw_only=True):
    """One numbered file."""

    version: int
    name: str
    text: str
    description: str
    locks: str
    steps: tuple[Step, ...] = ()

    @property
    def checksum(self) -> str:
        """What the file looks like; a file that has landed never changes."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Number and name, as in the file's name."""
        return f"{self.version:04d}_{self.name}"


class MigrationStatus(Struct, frozen=True, kw_only=True):
    """A migration and whether this database has it."""

    migration: str
    state: Literal["applied", "pending", "unknown", "changed"]
    description: str = ""
    locks: str = ""
    applied_at: datetime | None = None


def parse(filename: str, text: str) -> Migration:
    """Read one migration file."""
    match = _FILE.match(filename)
    if match is None:
        raise SchemaError(f"migration file {filename!r} is not named like 0001_name.sql")
    text = text.replace("\r\n", "\n")
    header = dict(re.findall(r"^-- (description|locks|kind): (.+)$", text, re.MULTILINE))
    if "description" not in header or "locks" not in header:
        raise SchemaError(f"migration file {filename!r} needs `-- description:` and `-- locks:`")
    return Migration(
        version=int(match[1]),
        name=match[2],
        text=text,
        description=header["description"],
        locks=header["locks"],
        steps=_steps(text) if header.get("kind") == "steps" else (),
    )


def _steps(text: str) -> tuple[Step, ...]:
    pieces = re.split(r"^-- step: (\S+)$", text, flags=re.MULTILINE)
    return tuple(
        Step(
            name,
            re.sub(r"^--.*$", "", body, flags=re.MULTILINE).strip().rstrip(";"),
            undo[1] if (undo := re.search(r"^-- undo: (.+?);?$", body, re.MULTILINE)) else None,
        )
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    )


def known() -> tuple[Migration, ...]:
    """Every migration this program carries, in order."""
    folder = importlib.resources.files(__package__).joinpath("migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    found = tuple(parse(name, folder.joinpath(name).read_text("utf-8")) for name in files)
    if len({migration.version for migration in found}) < len(found):
        raise SchemaError(f"two migration files have the same number: {', '.join(files)}")
    return found


async def status(
    database: Database, migrations: Sequence[Migration] | None = None
) -> list[MigrationStatus]:
    """Return every migration that this program or the database knows, in order."""
    everything = known() if migrations is None else migrations
    if not await database.fetchval(SQL.has_migrations):
        return _compare([], everything)
    return _compare(await database.fetch(SQL.applied_migrations), everything)


def _compare(
    applied: Sequence[asyncpg.Record], migrations: Sequence[Migration]
) -> list[MigrationStatus]:
    rows = {row["version"]: row for row in applied}
    result = []
    for migration in migrations:
        row = rows.pop(migration.version, None)
        state: Literal["applied", "pending", "changed"] = "pending"
        if row is not None:
            state = "applied" if row["checksum"] == migration.checksum else "changed"
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
    return sorted(result, key=lambda one: one.migration)


async def check(database: Database, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Return the labels of pending migrations; refuse a schema this program does not fit."""
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
    """Apply what is pending and return the labels of what was done.

    Safe to run from many processes at once and to be killed at any instruction.
    """
    everything = known() if migrations is None else migrations
    if not await check(database, everything):
        return []
    await _alone(database, _prepare)
    return [
        migration.label
        for migration in everything
        if await _alone(database, partial(_apply, database, migration, everything))
    ]


async def _alone(database: Database, work: Callable[[Transaction], Awaitable[bool]]) -> bool:
    """Run `work` in a transaction that holds the lock, as soon as nobody else does.

    It asks again and again instead of standing in line: a statement that waits has a snapshot, and
    a step like CREATE INDEX CONCURRENTLY waits for every older snapshot to go.
    """

    async def locked(tx: Transaction) -> bool | None:
        return await work(tx) if await tx.fetchval(SQL.lock_migrations, locks.MIGRATE) else None

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
    await tx.execute(_BOOTSTRAP)
    return True


async def _apply(
    database: Database, migration: Migration, migrations: Sequence[Migration], tx: Transaction
) -> bool:
    """Apply one migration under the lock, unless it is there by now; refuses what does not fit."""
    pending = _judge(_compare(await tx.fetch(SQL.applied_migrations), migrations))
    if migration.label not in pending:
        return False
    if migration.steps:
        await _apply_steps(database, tx, migration)
    else:
        await faults.point("before_migration")
        await tx.execute(migration.text, timeout=MIGRATION_SECONDS_MAX)
        await faults.point("after_migration")
    program = f"relevo {importlib.metadata.version('relevo')}"
    await tx.execute(
        SQL.record_migration, migration.version, migration.name, migration.checksum, program
    )
    return True


async def _apply_steps(database: Database, tx: Transaction, migration: Migration) -> None:
    """Run each step on a connection of its own while the transaction holds the lock."""
    rows = await tx.fetch(SQL.migration_steps, migration.version)
    state = {row["step"]: row["finished"] for row in rows}
    # What that statement leaves open holds a snapshot until the next, and a step may wait for it.
    await tx.execute("select 1")
    worker = await database.endpoint.connect(command_timeout=MIGRATION_SECONDS_MAX)
    try:
        for step in migration.steps:
            if state.get(step.name):
                continue
            if step.name in state and step.undo:
                await worker.execute(step.undo)
            await _note(worker, SQL.start_step, migration, step)
            await faults.point("before_migration_step")
            await worker.execute(step.sql)
            await faults.point("after_migration_step")
            await _note(worker, SQL.finish_step, migration, step)
    finally:
        worker.terminate()


async def _note(worker: asyncpg.Connection, sql: str, migration: Migration, step: Step) -> None:
    async with worker.transaction():  # for PgBouncer: a statement with arguments is two messages
        await worker.execute(sql, migration.version, step.name)
