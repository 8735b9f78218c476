"""`relevo actor watch`: slots by host, the work of actors by type, and pools, drawn repeatedly."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from relevo import limits
from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.live import screen
from relevo.cli.output.printing import printable
from relevo.cli.output.render import Renderer
from relevo.errors import NotFound
from relevo.jobs.cli.board import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

POOLS_SHOWN: Final = 20


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
    """Watch actors: slots by host, work by type, activations of a host, and pools.

    Activations, turns and waiting calls are those of the host at --url; pools show the keys that
    have waited longest. On a terminal the view is drawn in place, until Ctrl-C; into a pipe one
    view after the other, and with --output json a line each time.
    """
    session.log_quietly()
    asyncio.run(_watch(session, None if once else every))


async def _watch(session: Session, every: float | None) -> None:
    renderer, wanted = Renderer(session.output), tree.operation("actors.figures")
    async with way_to(wanted, session) as calls:
        with screen(renderer, live=every is not None) as draw:
            while True:
                found = await _ask(calls, wanted.name, {})
                found["pools"] = await _pools(calls)
                if session.output != "table":
                    renderer.data(found, line=True)
                else:
                    draw(_picture(renderer, found))
                if every is None:
                    return
                await asyncio.sleep(every)


async def _ask(calls: Calls, name: str, values: dict[str, Any]) -> dict[str, Any]:
    reply = await calls.call(tree.operation(name), values)
    found: dict[str, Any] = msgspec.json.decode(reply.body)
    return found


async def _pools(calls: Calls) -> list[dict[str, Any]]:
    """Return pools, those with most waiting callers first, and the keys that wait for them."""
    pools = (await _ask(calls, "pools.list", {"limit": limits.PAGE_ROWS_MAX}))["items"]
    shown = sorted(pools, key=lambda pool: (-(pool["waiting"] or 0), pool["name"]))[:POOLS_SHOWN]
    for pool in shown:
        pool["waiters"] = []
        if pool["waiting"]:
            with contextlib.suppress(NotFound):  # it was removed meanwhile
                pool["waiters"] = (await _ask(calls, "pools.get", {"name": pool["name"]}))[
                    "waiters"
                ]
    return shown


def _picture(renderer: Renderer, found: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [
        _table(found["slots"], "placement_group", "host", "slots", "moving")
        or Text("no host serves actors", style="dim")
    ]
    stored = _table(
        found["stored"], "type", "reminders", "messages", "failing", "dead", "late_seconds"
    )
    here = _table(found["here"], "type", "activations", "max_local", "turns", "waiting", "deferred")
    pools = [
        {
            "pool": pool["name"],
            **pool,
            "waits_longest": ", ".join(_waiter(one) for one in pool["waiters"][:3]) or None,
        }
        for pool in found["pools"]
    ]
    waits = _table(pools, "pool", "size", "in_use", "waiting", "waits_longest")
    parts += [one for one in (stored, here, waits) if one is not None]
    if renderer.console.is_terminal:
        parts.append(Text(f"as of {datetime.now().astimezone():%H:%M:%S}", style="dim"))
    return Group(*parts)


def _waiter(waiter: Mapping[str, Any]) -> str:
    return f"{waiter['key'] or '(no key)'} {waiter['seconds']:.0f} s"


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
