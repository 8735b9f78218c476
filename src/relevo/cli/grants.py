"""`relevo grants`: the SQL that gives four roles what each of them needs, and nothing else.

owner      migrates: the schema and everything in it is its
host       serves; it reads and writes rows, and cannot change tables
submitter  submits jobs and puts items by functions, inside its own transactions; it reads nothing
reader     reads the views for reports, in which nobody's data are
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from relevo.cli.options import LOCAL, command
from relevo.cli.render import Renderer
from relevo.errors import Conflict
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import quoted
from relevo.kernel.postgres.database import Database

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.cli.session import Session
    from relevo.kernel.postgres.database import Transaction

SQL = catalog.load("relevo.cli")
KINDS: Final = ("owner", "host", "submitter", "reader")
SUBMITTING: Final = ("submit_job", "submit_jobs_in", "put_item")
"""The functions for callers' own transactions."""
_ROWS: Final = "select, insert, update, delete"


class Grants(Struct, frozen=True):
    """SQL statements, in their order, and whether they were executed."""

    statements: list[str]
    applied: bool


class SchemaFacts(Struct, frozen=True):
    """What there is that statements depend on."""

    schema: str
    owner: str | None
    """Who owns the schema; None if it does not exist."""
    is_filled: bool
    """Whether it has its tables and functions."""
    views: tuple[str, ...]
    roles: frozenset[str]
    """Those of the wanted roles that exist."""


@command("grants", shared=LOCAL)
@click.option("--owner", metavar="ROLE", help="Migrates. Default: whoever owns the schema.")
@click.option("--host", metavar="ROLE", help="Serves. Default: SCHEMA_host")
@click.option("--submitter", metavar="ROLE", help="Submits and puts. Default: SCHEMA_submitter")
@click.option("--reader", metavar="ROLE", help="Reads reports. Default: SCHEMA_reader")
@click.option("--apply", is_flag=True, help="Execute the statements, in one transaction.")
@click.pass_obj
def grants(session: Session, /, *, apply: bool, **names: str | None) -> None:
    """Print the SQL for the roles of Relevo: owner, host, submitter and reader.

    Roles that do not exist are made, without a password. Run it again after every migration.
    """
    session.log_quietly()
    settings = session.local_settings()

    async def run() -> list[str]:
        async with await Database.open(settings) as database:
            given = {kind: name for kind, name in names.items() if name}
            made = statements(*await _wanted(database, given))
            if apply:
                await database.run(lambda tx: _execute(tx, made))
            return made

    made = asyncio.run(run())
    if session.output == "json":
        Renderer("json").result(Grants(made, apply))
        return
    for statement in made:
        click.echo(f"{statement};")


async def _wanted(
    database: Database, given: Mapping[str, str]
) -> tuple[SchemaFacts, dict[str, str]]:
    roles = {kind: f"{database.schema}_{kind}" for kind in KINDS} | dict(given)
    row = await database.fetchrow(SQL.schema_facts, list(roles.values()))
    assert row is not None
    owner: str | None = row["owner"]
    if owner is not None and given.get("owner", owner) != owner:
        raise Conflict(
            f"the schema {database.schema} belongs to {owner}, not to {given['owner']}; leave out"
            " --owner, or have a superuser hand over the schema and everything in it"
        )
    facts = SchemaFacts(
        schema=database.schema, owner=owner, is_filled=row["is_filled"],
        views=tuple(row["views"]), roles=frozenset(row["roles"]),
    )  # fmt: skip
    return facts, roles | ({"owner": owner} if owner else {})


async def _execute(tx: Transaction, made: list[str]) -> None:
    for statement in made:
        await tx.execute(catalog.own("cli.grants", statement))


def statements(facts: SchemaFacts, roles: Mapping[str, str]) -> list[str]:
    """Return the statements that give each role its rights, whatever it had before."""
    named = {kind: _identifier(name) for kind, name in roles.items()}
    missing = [
        f"create role {named[kind]} login"
        for kind in KINDS
        if roles[kind] not in facts.roles and roles[kind] != facts.owner
    ]
    schema = quoted(facts.schema)
    owner, host, submitter, reader = (named[kind] for kind in KINDS)
    if facts.owner is None:
        # Who is no superuser must be a member of the owner to act in its name.
        missing.append(f"grant {owner} to current_user")
        missing.append(f"create schema {schema} authorization {owner}")
    defaults = f"alter default privileges for role {owner} in schema {schema} grant"
    made = [
        *missing,
        f"grant usage on schema {schema} to {host}, {submitter}, {reader}",
        f"grant {_ROWS} on all tables in schema {schema} to {host}",
        f"grant usage, select on all sequences in schema {schema} to {host}",
        f"grant execute on all functions in schema {schema} to {host}",
        f"{defaults} {_ROWS} on tables to {host}",
        f"{defaults} usage, select on sequences to {host}",
        f"{defaults} execute on functions to {host}",
    ]
    if not facts.is_filled:
        return made
    records = ", ".join(f"{schema}.{name}" for name in ("migration", "migration_step", "function"))
    calls = ", ".join(f"{schema}.{name}" for name in SUBMITTING)
    views = ", ".join(f"{schema}.{name}" for name in facts.views)
    return [
        *made,
        f"revoke insert, update, delete on {records} from {host}",
        f"revoke execute on all functions in schema {schema} from public",
        f"grant execute on function {calls} to {submitter}",
        f"grant select on {views} to {reader}",
    ]


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
