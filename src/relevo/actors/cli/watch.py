"""`relevo actor watch`: slots by host, and the work of actors by type, drawn again and again."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from relevo.cli.calls import way_to
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.render import Renderer, echo_json, printable
from relevo.http import operations
from relevo.jobs.cli.board import screen, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.session import Session


@command("watch", shared=EVERYWHERE)
@click.option("--once", is_flag=True, help="Look once, and end.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=2.0,
    metavar="SECONDS",
    help="How often it looks. Default: 2.",
)
@click.pass_obj
def watch(session: Session, once: bool, every: float) -> None:
    """Watch actors: slots by host, reminders and messages by type, and activations of a host.

    Activations, turns and waiting calls are those of the host at --url. On a terminal the view is
    drawn in place, until Ctrl-C; into a pipe one view after the other, and with --output json a
    line each time.
    """
    session.log_quietly()
    asyncio.run(_watch(session, None if once else every))


async def _watch(session: Session, every: float | None) -> None:
    renderer, wanted = Renderer(session.output), operations.operation("actors.figures")
    async with way_to(wanted, session) as calls:
        with screen(renderer, live=every is not None) as draw:
            while True:
                reply = await calls.call(wanted, {})
                if session.output == "json":
                    echo_json(reply.body)
                else:
                    draw(_picture(renderer, msgspec.json.decode(reply.body)))
                if every is None:
                    return
                await asyncio.sleep(every)


def _picture(renderer: Renderer, found: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [
        _table(found["slots"], "placement_group", "host", "slots", "moving")
        or Text("no host serves actors", style="dim")
    ]
    stored = _table(
        found["stored"], "type", "reminders", "messages", "failing", "dead", "late_seconds"
    )
    here = _table(found["here"], "type", "activations", "max_local", "turns", "waiting", "deferred")
    parts += [one for one in (stored, here) if one is not None]
    if renderer.console.is_terminal:
        parts.append(Text(f"as of {datetime.now().astimezone():%H:%M:%S}", style="dim"))
    return Group(*parts)


def _table(rows: Sequence[Mapping[str, Any]], *names: str) -> RenderableType | None:
    if not rows:
        return None
    shown = table(*(name.replace("_", " ") for name in names))
    for row in rows:
        shown.add_row(*(Text(_cell(row[name])) for name in names))
    return shown


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
    return printable(str(value))
