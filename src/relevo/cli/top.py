"""`relevo top`: queues, lanes, feeds and the router at work, drawn again and again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.live import screen
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.errors import Forbidden
from relevo.feed.cli.board import feeds_table
from relevo.jobs.cli.board import as_of, lanes_table
from relevo.messaging.cli.rates import figures, rates_of, rates_table
from relevo.router.cli.board import standings_table

if TYPE_CHECKING:
    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

FIRST_SECONDS: Final = 1.0
"""Between the first two readings: a rate needs both."""


@command("top", shared=EVERYWHERE)
@click.option("--once", is_flag=True, help="Look for a second, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=2.0,
    metavar="SECONDS",
    help="How often it looks. Default: 2.",
)
@click.pass_obj
def top(session: Session, once: bool, every: float) -> None:
    """Watch queues, lanes of jobs, feeds and the router at work.

    Classes of queues are shown busiest first: rates, messages, waits, service targets. On a
    terminal it is drawn in place, until Ctrl-C; into a pipe one picture after the other, and with
    --output json a line each time. Without JSON, classes that never had messages are left out.
    """
    session.log_quietly()
    asyncio.run(_top(session, None if once else every))


async def _top(session: Session, every: float | None) -> None:
    renderer = Renderer(session.output)
    async with way_to(tree.operation("messages.figures"), session) as calls:
        with screen(renderer, live=every is not None) as draw:
            before, at = await figures(calls), time.monotonic()
            await asyncio.sleep(min(FIRST_SECONDS, every or FIRST_SECONDS))
            while True:
                after, now = await figures(calls), time.monotonic()
                work: dict[str, Any] = {
                    "queues": rates_of(before, after, now - at),
                    "lanes": await _items(calls, "lanes.list"),
                    "feeds": await _items(calls, "feeds.list"),
                    "router": await _items(calls, "router.queues.overview"),
                }
                before, at = after, now
                if session.output != "table":
                    renderer.data(msgspec.to_builtins(work), line=True)
                else:
                    draw(_picture(renderer, work))
                if every is None:
                    return
                await asyncio.sleep(every)


async def _items(calls: Calls, name: str) -> list[dict[str, Any]] | str:
    """Return the first page of a list, or the reason why the key may not read it."""
    try:
        reply = await calls.call(tree.operation(name), {})
    except Forbidden as error:
        return error.message
    items: list[dict[str, Any]] = msgspec.json.decode(reply.body)["items"]
    return items


def _picture(renderer: Renderer, work: dict[str, Any]) -> RenderableType:
    parts = rates_table(work["queues"])
    drawers = {"lanes": lanes_table, "feeds": feeds_table, "router": standings_table}
    for name, draw in drawers.items():
        items = work[name]
        if isinstance(items, str):
            parts.append(Text(f"{name}: {printable(items)}", style="dim"))
        elif items:
            parts.append(draw(items))
    return Group(*parts, *as_of(renderer))
