"""`relevo run module:app`: a host for a program, with a live view of its work."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text as Line

from relevo.cli import tree
from relevo.cli.calling.local_calls import LocalCalls
from relevo.cli.generic.values import Listen, Text
from relevo.cli.hosts import hosting
from relevo.cli.hosts.hosting import Hosting
from relevo.cli.hosts.programs import app_for
from relevo.cli.hosts.up import announcer
from relevo.cli.options import ALWAYS, OUTPUT, WHERE, command
from relevo.cli.output.live import screen
from relevo.cli.output.printing import note, printable
from relevo.cli.output.render import Renderer
from relevo.errors import RelevoError
from relevo.feed.cli.board import feeds_table
from relevo.jobs.cli.board import board
from relevo.kernel.telemetry import configure_logs
from relevo.kernel.telemetry.logs import get_logger
from relevo.router.cli.board import standings_table

if TYPE_CHECKING:
    from relevo.app import App
    from relevo.cli.hosts.hosting import Announcement
    from relevo.cli.session import Session

log = get_logger(__name__)
LOOK_SECONDS: Final = 1.0
LINE_SECONDS: Final = 10.0
ROWS_MAX: Final = 20
"""Feeds, and queues of the router, at most."""
SHARE: Final = 20.0
"""Reading the state takes at most 1/20 of the time: with many jobs the view refreshes less."""


@command("run", shared=(*WHERE, *OUTPUT, *ALWAYS))
@click.argument(
    "target",
    type=Text(),
    metavar="MODULE:APP",
    help="Module and variable of the program's app; `:app` is the default.",
)
@click.option("--name", metavar="NAME", help="Unique name of this host. Default: generated.")
@click.option(
    "--http",
    type=Listen(),
    metavar="HOST:PORT",
    help="Also serve the API there, with the program's tables and messages.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Serve only this job, processor, set of consumers or type of actors; may be given several"
    " times.",
)
@click.option("--plain", is_flag=True, help="Log lines instead of the live view.")
@click.pass_obj
def run(
    session: Session,
    target: str,
    name: str | None,
    http: tuple[str | None, int] | None,
    only: tuple[str, ...],
    plain: bool,
) -> None:
    """Run a host for a program: its jobs, processors, consumers, actors, and with --http the API.

    The module is also searched for in the current folder. On a terminal a live view shows running
    and waiting jobs, feeds and the router; elsewhere each change is logged. SIGTERM or Ctrl-C lets
    running work finish and stops, and says what it waits for; a second one ends the process at
    once.
    """
    host, port = http or (None, None)
    app = app_for(target, session, host_name=name, host=host, port=port)
    if only:
        app.serve_only(*only)
    live = sys.stdout.isatty() and not plain and session.output == "table"
    level = app.settings.log_level or ("warning" if live else "info")
    configure_logs(app.settings.log_format, level)
    announce, served = announcer(session.output), _served(app)

    def started(app: App, announcement: Announcement | None) -> None:
        announce(announcement)
        note(f"serving {served or 'nothing of its own'} as host {app.leases.name}")

    how = Hosting(started=started, http=http is not None, meanwhile=_watch if live else _log_lanes)
    hosting.run(app, how)


def _served(app: App) -> str:
    """Return the names of the program's handlers, processors, consumers and types of actors."""
    processors = (processor.unit_name for processor in app.feeds.processors.values())
    consumers, types = app.messaging.registry.consumers, app.actors.types.by_name
    return ", ".join(sorted([*app.jobs.registry.handlers, *processors, *consumers, *types]))


async def _watch(app: App) -> None:
    """Draw the view; if it cannot be drawn any more, log lines instead."""
    try:
        await _draw(app)
    except Exception:
        log.exception("run.view_failed", goes_on="with log lines")
        await _log_lanes(app)


async def _draw(app: App) -> None:
    """Draw lanes, this host's running jobs, feeds and the router, in place.

    A view that cannot be refreshed says so and since when.
    """
    renderer, calls = Renderer(), LocalCalls(app)
    picture: RenderableType = Line("reading what there is to do …", style="dim")
    stale: str | None = None
    with screen(renderer, live=True) as draw:
        while True:
            begun = time.monotonic()
            try:
                picture, stale = await _picture(app, renderer, calls), None
                draw(picture)
            except Exception as error:
                stale = stale or f"{datetime.now().astimezone():%H:%M:%S}"
                reason = error.message if isinstance(error, RelevoError) else repr(error)
                text = f"not refreshed since {stale}: {printable(reason)}; trying again"
                draw(Group(picture, Line(text, style="yellow")))
            await asyncio.sleep(max(LOOK_SECONDS, SHARE * (time.monotonic() - begun)))


async def _picture(app: App, renderer: Renderer, calls: LocalCalls) -> RenderableType:
    lanes = await app.jobs.views.lanes()
    running = await app.jobs.views.running(app.leases.life.incarnation)
    tables = []
    for name, drawn in (("feeds.list", feeds_table), ("router.queues.overview", standings_table)):
        reply = await calls.call(tree.operation(name), {"limit": ROWS_MAX})
        if items := msgspec.json.decode(reply.body)["items"]:
            tables.append(drawn(items))
    return board(renderer, *_plain(lanes, running), *tables)


async def _log_lanes(app: App) -> None:
    """Log the job counts of lanes when they have changed."""
    before: dict[str, tuple[int, ...]] = {}
    while True:
        begun = time.monotonic()
        try:
            for lane in await app.jobs.views.lanes():
                now = (lane.running, lane.ready, lane.suspended)
                if now != before.get(lane.name, (0, 0, 0)):
                    log.info(
                        "jobs.lane", lane=lane.name, running=lane.running, ready=lane.ready,
                        suspended=lane.suspended,
                    )  # fmt: skip
                before[lane.name] = now
        except RelevoError:
            pass  # the host itself logs database errors
        except Exception:
            log.exception("run.lanes_not_read")
        await asyncio.sleep(max(LINE_SECONDS, SHARE * (time.monotonic() - begun)))


def _plain(*values: Any) -> Any:
    return msgspec.to_builtins(values)
