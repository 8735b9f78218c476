"""`relevo grants`: prints or executes the SQL for the roles of Relevo."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from relevo.cli.options import LOCAL, command
from relevo.cli.output.render import Renderer
from relevo.errors import Conflict
from relevo.kernel.postgres import grants as rights
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grants import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.cli.session import Session
    from relevo.kernel.postgres.grants import SchemaFacts


class Grants(Struct, frozen=True):
    """SQL statements, in their order, and whether they were executed."""

    statements: list[str]
    applied: bool


@command("grants", shared=LOCAL)
@click.option(
    "--owner", metavar="ROLE", help="Role that migrates. Default: the owner of the schema."
)
@click.option("--host", metavar="ROLE", help="Role of hosts. Default: SCHEMA_host")
@click.option("--submitter", metavar="ROLE", help="Role that submits. Default: SCHEMA_submitter")
@click.option("--reader", metavar="ROLE", help="Role that reads reports. Default: SCHEMA_reader")
@click.option("--apply", is_flag=True, help="Execute the statements, in one transaction.")
@click.pass_obj
def grants(session: Session, /, *, apply: bool, **names: str | None) -> None:
    """Print the SQL for the roles of Relevo: owner, host, submitter and reader.

    Missing roles are created, without a password. Run it before and after the first
    migration; later migrations renew the rights of these roles.
    """
    session.log_quietly()
    settings = session.database_settings(creates=apply)

    async def run() -> list[str]:
        async with await Database.open(settings) as database:
            given = {kind: name for kind, name in names.items() if name}
            made = rights.statements(*await _wanted(database, given))
            if apply:
                await database.run(lambda tx: rights.execute(tx, made))
            return made

    made = asyncio.run(run())
    if session.output != "table":
        Renderer(session.output).result(Grants(made, apply))
        return
    for statement in made:
        click.echo(f"{statement};")


async def _wanted(
    database: Database, given: Mapping[str, str]
) -> tuple[SchemaFacts, dict[str, str]]:
    roles = {kind: f"{database.schema}_{kind}" for kind in KINDS} | dict(given)
    facts = await rights.look(database, database.schema, roles)
    owner = facts.owner
    if owner is not None and given.get("owner", owner) != owner:
        raise Conflict(
            f"the schema {database.schema} belongs to {owner}, not to {given['owner']}; remove"
            " --owner, or let a superuser change the owner of the schema and its objects"
        )
    return facts, roles | ({"owner": owner} if owner else {})
