"""`relevo actor slots`: another number of slots for a placement group that nobody serves."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from relevo.actors.operating.resizing import ResizedGroup, resize_group
from relevo.cli import exits
from relevo.cli.generic.values import Text
from relevo.cli.options import LOCAL, command
from relevo.cli.output.render import Renderer
from relevo.kernel.postgres.database import Database

if TYPE_CHECKING:
    from relevo.cli.session import Session


@command("slots", shared=LOCAL)
@click.argument("group", type=Text(), metavar="GROUP", help="The placement group.")
@click.argument("slots", type=int, metavar="SLOTS", help="How many slots it gets: 1 to 4096.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def slots(session: Session, group: str, slots: int, yes: bool) -> int:
    """Change the number of slots of a placement group, while no host serves it.

    Stop all hosts of the group and all programs that call its actors first, and set
    RELEVO_ACTORS_SLOTS on all of them before they start again. It is one transaction:
    if it is interrupted, nothing has changed.
    """
    session.log_quietly()
    settings = session.database_settings()
    question = f"Change placement group {group} to {slots} slots?"
    if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not click.confirm(question):
        click.echo("nothing was done", err=True)
        return exits.REFUSED

    def show(rows: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{rows:,} rows placed", nl=False, err=True)

    async def run() -> ResizedGroup:
        async with await Database.open(settings) as database:
            return await resize_group(database, group, slots, show)

    resized = asyncio.run(run())
    if sys.stderr.isatty():
        click.echo(err=True)
    Renderer(session.output).result(resized)
    return exits.OK
