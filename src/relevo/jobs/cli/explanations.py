"""`relevo job explain`: why a job has not run, in a sentence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.ids import IdText, full_id
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.jobs.core.reasons import JobExplanation

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session


@command("explain", shared=EVERYWHERE)
@click.argument(
    "id",
    type=IdText(),
    metavar="ID",
    help="The job's id, as `relevo job list` shows it; its first characters are enough.",
)
@click.pass_obj
def explain(session: Session, id: Any) -> None:  # noqa: A002 - the word of the API
    """Say why a job has not run: handler, lane, token, cap, time, brake, or its place in order.

    No live host has its handler, a job of its token blocks it, a cap or a budget is reached, its
    start or the next attempt lies ahead, somebody paused it, or others come before it. Of a job
    that runs it says where.
    """
    session.log_quietly()

    async def work() -> bytes:
        async with way_to(tree.operation("jobs.explain"), session) as calls:
            return await explanation(calls, await full_id(calls, "jobs", id))

    body = asyncio.run(work())
    renderer = Renderer(session.output)
    if session.output != "table":
        renderer.show(body, JobExplanation)
        return
    for line in sentences(msgspec.json.decode(body)):
        renderer.console.print(printable(line), soft_wrap=True)


async def explanation(calls: Calls, key: str) -> bytes:
    """Return the explanation of a job, as the API answers it."""
    return (await calls.call(tree.operation("jobs.explain"), {"id": key})).body


def sentences(found: dict[str, Any]) -> list[str]:
    """Return the reason and what follows it, a line each.

    >>> sentences({"says": "it starts at noon", "notes": ["no live host has it"]})
    ['it starts at noon', 'also: no live host has it']
    """
    return [found["says"], *(f"also: {note}" for note in found["notes"])]
