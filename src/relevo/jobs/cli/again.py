"""`relevo job run-again`: a new job like another one, perhaps with other data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from relevo.cli import exits, tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.ids import IdText, full_id
from relevo.cli.generic.values import Instant, Json, Null, Text
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer

if TYPE_CHECKING:
    from relevo.cli.session import Session


@command("run-again", shared=EVERYWHERE)
@click.argument("id", type=IdText(), metavar="ID", help="The job that is repeated.")
@click.argument(
    "data",
    type=Json(),
    required=False,
    metavar="[DATA]",
    help="Other arguments as a JSON object, @FILE, or -. Default: those of the job.",
)
@click.option("--name", type=Text(), help="What people call it. Default: as the job.")
@click.option("--token", type=Text(), help="Default: that of the job.")
@click.option("--start", type=Instant(), help="Not before this time. Default: now.")
@click.option("--lane", type=Text(), help="Default: the lane of the handler.")
@click.option("--priority", type=click.IntRange(0, 9), help="Default: that of the job.")
@click.pass_obj
def run_again(session: Session, /, **given: Any) -> int:
    """Submit a new job like another one, with the same or with other data; prints its id.

    The other job keeps its record, and `relevo job show` names it as the origin of the new one. To
    run the same job again, use `relevo job retry`.
    """
    session.log_quietly()
    values = {name: each for name, each in given.items() if each not in (None, Null)}
    if not isinstance(values.get("data", {}), dict):
        raise click.UsageError('DATA is an object of arguments, such as {"customer": "ana"}')
    return asyncio.run(_run_again(session, values))


async def _run_again(session: Session, values: dict[str, Any]) -> int:
    operation = tree.operation("jobs.run_again")
    async with way_to(operation, session) as calls:
        values["id"] = await full_id(calls, "jobs", str(values["id"]))
        reply = await calls.call(operation, values)
    made = msgspec.json.decode(reply.body)
    if made["existed"]:
        note("the job of this key exists already")
    if made["warning"]:
        note(printable(f"warning: {made['warning']}"))
    if session.output != "table":
        Renderer(session.output).show(reply.body, operation.response)
    else:
        click.echo(made["id"])
    return exits.OK
