"""`relevo feed lag`, `tail` and `run`: the feed as it goes on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.live import Live

from relevo.cli import tree
from relevo.cli.calling.calls import way_to
from relevo.cli.generic.commands import all_pages
from relevo.cli.generic.values import Key, Null, Where
from relevo.cli.options import EVERYWHERE, command
from relevo.cli.output.printing import note
from relevo.cli.output.render import Renderer
from relevo.errors import OutcomeUnknown, Unavailable
from relevo.feed.http.units import FeedView, UnitLeaseView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from relevo.cli.calling.calls import Calls
    from relevo.cli.session import Session

WAIT_SECONDS: Final = 20.0
"""How long one request of `tail` waits for changes."""
AGAIN_SECONDS: Final = 1.0


@command("lag", shared=EVERYWHERE)
@click.argument("container", required=False, metavar="[CONTAINER", help="Only of this container.")
@click.argument("name", required=False, metavar="NAME]", help="Its processor, lease by lease.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3_600.0),
    default=2.0,
    metavar="SECONDS",
    help="How often --watch looks. Default: 2.",
)
@click.pass_obj
def lag(
    session: Session, container: str | None, name: str | None, watch: bool, every: float
) -> None:
    """Show how far processors are behind: all of them, or one of them lease by lease.

    On a terminal --watch draws one table in place; into a pipe it writes one after the other, and
    with --output json a line each time.
    """
    if (container is None) != (name is None):
        raise click.UsageError("give the container and the processor's name, or neither")
    session.log_quietly()
    asyncio.run(_lag(session, (container, name), every if watch else None))


async def _lag(session: Session, unit: tuple[str | None, str | None], every: float | None) -> None:
    operation = tree.operation("feeds.list" if unit[0] is None else "feeds.get")
    async with way_to(operation, session) as calls, _screen(session, unit, every) as show:
        while True:
            values: dict[str, Any] = {"container": unit[0], "name": unit[1]}
            values = {"limit": 100} if unit[0] is None else values
            reply = await all_pages(calls, operation, values)
            show(reply.body)
            if every is None:
                return
            await asyncio.sleep(every)


@asynccontextmanager
async def _screen(
    session: Session, unit: tuple[str | None, str | None], every: float | None
) -> AsyncIterator[Callable[[bytes], None]]:
    """Return the printer for an answer: a table on a terminal, JSON lines elsewhere."""
    renderer = Renderer(session.output)
    kind = FeedView if unit[0] is None else UnitLeaseView
    if session.output != "table":
        line = every is not None
        yield lambda body: renderer.data(msgspec.json.decode(body), kind, line=line)
    elif every is None or not renderer.console.is_terminal:
        yield lambda body: renderer.table(msgspec.json.decode(body)["items"], kind)
    else:
        with Live(console=renderer.console, auto_refresh=False) as live:
            yield lambda body: live.update(
                renderer.drawn(msgspec.json.decode(body)["items"], kind), refresh=True
            )


@command("tail", shared=EVERYWHERE)
@click.argument("container", metavar="CONTAINER", help="The container's name.")
@click.option(
    "start",
    "--from",
    default="now",
    metavar="START",
    help="beginning, now, a time such as 2031-05-30T18:00:00Z, or a snapshot's name. Default: now.",
)
@click.option(
    "--mode",
    type=click.Choice(("latest", "all_versions")),
    default="latest",
    help="Each item as it is, or every version and delete. Default: latest.",
)
@click.option("--feed-range", metavar="RANGE", help="Only this part of the feed, such as 10-20.")
@click.option(
    "--partition-key",
    type=Key(),
    metavar="KEY",
    help="Only items with this key, or its first parts.",
)
@click.option(
    "--where",
    type=Where(),
    multiple=True,
    metavar="CONDITION",
    help="Only changes whose item meets it, such as total>=5. May be repeated.",
)
@click.option("--once", is_flag=True, help="End when there is nothing more to read.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many changes.")
@click.pass_obj
def tail(session: Session, /, **given: Any) -> None:
    """Follow the changes of a container: one line of JSON each, until Ctrl-C.

    A host that is not there for a while is waited for; nothing is missed and nothing comes twice.
    """
    session.log_quietly()
    once, count = given.pop("once"), given.pop("count")
    values = {name: value for name, value in given.items() if value is not None}
    if values.get("partition_key") is Null:
        values["partition_key"] = None
    asyncio.run(_tail(session, values, once=once, count=count))


async def _tail(session: Session, values: dict[str, Any], *, once: bool, count: int | None) -> None:
    operation = tree.operation("feeds.changes")
    values["wait_seconds"] = 0.0 if once else WAIT_SECONDS
    left, renderer = count, Renderer(session.output)
    async with way_to(operation, session) as calls:
        while left is None or left > 0:
            page = await _page(calls, values)
            for change in page["items"][:left]:
                renderer.data(change, line=True)
            left = None if left is None else left - len(page["items"])
            values["continuation"] = page["continuation"]
            if once and page["caught_up"]:
                return


async def _page(calls: Calls, values: dict[str, Any]) -> Any:
    """Return the next page; once there is a place to go on from, a host may be away meanwhile."""
    operation = tree.operation("feeds.changes")
    while True:
        try:
            return msgspec.json.decode((await calls.call(operation, values)).body)
        except (Unavailable, OutcomeUnknown) as error:
            if "continuation" not in values:
                raise
            note(f"{error.message}; trying again")
            await asyncio.sleep(AGAIN_SECONDS)
