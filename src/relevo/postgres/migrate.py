"""Numbered SQL files become the schema; each is applied once, whole, or not at all.

A file begins with comments: `-- description: …`, `-- locks: …`, and `-- kind: steps` if it holds
statements that PostgreSQL refuses inside a transaction. Such a file is a list of sections
`-- step: name`, each with one statement and, if a killed attempt leaves something behind, a line
`-- undo: statement` that is run before the step is tried again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import re
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from relevo import faults
from relevo.errors import SchemaError, SchemaTooNew
from relevo.postgres import catalog, locks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from relevo.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
MIGRATION_SECONDS_MAX: Final = 6 * 3600.0
"""For one migration, and for waiting until another process has done it."""
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
    await database.run(_prepare, idempotent=True)
    done = []
    for migration in everything:
        apply = _apply_steps if migration.steps else _apply_whole
        if await apply(database, migration, everything):
            done.append(migration.label)
    return done


async def _prepare(tx: Transaction) -> None:
    await tx.execute(SQL.lock_migrations, locks.MIGRATE, timeout=MIGRATION_SECONDS_MAX)
    await tx.execute(_BOOTSTRAP)


async def _is_pending(
    tx: Transaction, migration: Migration, migrations: Sequence[Migration]
) -> bool:
    """Lock, and look again what is there by now; raises if it no longer fits."""
    await tx.execute(SQL.lock_migrations, locks.MIGRATE, timeout=MIGRATION_SECONDS_MAX)
    return migration.label in _judge(_compare(await tx.fetch(SQL.applied_migrations), migrations))


async def _apply_whole(
    database: Database, migration: Migration, migrations: Sequence[Migration]
) -> bool:
    async def work(tx: Transaction) -> bool:
        if not await _is_pending(tx, migration, migrations):
            return False
        await faults.point("before_migration")
        await tx.execute(migration.text, timeout=MIGRATION_SECONDS_MAX)
        await faults.point("after_migration")
        await _record(tx, migration)
        return True

    return await database.run(work, idempotent=True)


async def _apply_steps(
    database: Database, migration: Migration, migrations: Sequence[Migration]
) -> bool:
    """Run each step on a connection of its own while a transaction holds the lock."""

    async def work(tx: Transaction) -> bool:
        if not await _is_pending(tx, migration, migrations):
            return False
        state = {
            r["step"]: r["finished"] for r in await tx.fetch(SQL.migration_steps, migration.version)
        }
        worker = await database.endpoint.connect(command_timeout=None)
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
            await worker.close()
        await _record(tx, migration)
        return True

    return await database.run(work, idempotent=True)


async def _note(worker: asyncpg.Connection, sql: str, migration: Migration, step: Step) -> None:
    async with worker.transaction():  # for PgBouncer: a statement with arguments is two messages
        await worker.execute(sql, migration.version, step.name)


async def _record(tx: Transaction, migration: Migration) -> None:
    program = f"relevo {importlib.metadata.version('relevo')}"
    await tx.execute(
        SQL.record_migration, migration.version, migration.name, migration.checksum, program
    )
