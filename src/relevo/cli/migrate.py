"""`relevo migrate`: shows the schema of a database and brings it up to date."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec
from msgspec import Struct

from relevo.cli.options import LOCAL, CommandGroup
from relevo.cli.output.render import Renderer
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate as migrations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from relevo.cli.session import Session
    from relevo.kernel.postgres.migration.migrate import MigrationStatus

T = TypeVar("T")


class MigrationRow(Struct, frozen=True, kw_only=True):
    """A migration and its state in this database."""

    migration: str
    state: str
    description: str
    locks: str
    applied_at: datetime | None


class MigrationRows(Struct, frozen=True):
    """Migrations in their order."""

    items: list[MigrationRow]


class Applied(Struct, frozen=True):
    """The migrations that were just applied."""

    applied: list[str]


migrate = CommandGroup(
    "migrate", help="Migrate: show the schema of the database, bring it up to date."
)


@migrate.leaf("status", shared=LOCAL)
@click.pass_obj
def status(session: Session) -> None:
    """List all migrations and whether the database has them."""
    _show(session, _on_database(session, migrations.status))


@migrate.leaf("plan", shared=LOCAL)
@click.pass_obj
def plan(session: Session) -> None:
    """Show what `migrate up` would do and which locks it takes; change nothing."""

    async def pending(database: Database) -> list[MigrationStatus]:
        labels = await migrations.check(database)
        return [one for one in await migrations.status(database) if one.migration in labels]

    _show(session, _on_database(session, pending))


@migrate.leaf("up", shared=LOCAL)
@click.pass_obj
def up(session: Session) -> None:
    """Apply pending migrations; safe while hosts run, and safe to repeat."""
    done = _on_database(session, migrations.up, creates=True)
    if session.output != "table":
        Renderer(session.output).result(Applied(done))
        return
    for label in done:
        click.echo(f"applied {label}")
    if not done:
        click.echo("nothing to do: the schema is up to date")


def _show(session: Session, found: list[MigrationStatus]) -> None:
    items = [MigrationRow(**msgspec.structs.asdict(one)) for one in found]
    Renderer(session.output).result(MigrationRows(items))


def _on_database(
    session: Session, work: Callable[[Database], Awaitable[T]], *, creates: bool = False
) -> T:
    session.log_quietly()
    settings = session.database_settings(creates=creates)

    async def run() -> T:
        async with await Database.open(settings) as database:
            return await work(database)

    return asyncio.run(run())
