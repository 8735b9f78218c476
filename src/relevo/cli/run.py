"""`relevo run module:app`: a host for what a program defines, with a live view of its jobs."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
import structlog

from relevo.cli import hosting
from relevo.cli.generic.values import Listen, Text
from relevo.cli.hosting import Hosting
from relevo.cli.options import ALWAYS, OUTPUT, WHERE, command
from relevo.cli.programs import app_for
from relevo.cli.render import Renderer, note
from relevo.cli.up import announcer
from relevo.errors import RelevoError
from relevo.jobs.cli.board import board, screen
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from relevo.app import App
    from relevo.cli.hosting import Announcement
    from relevo.cli.session import Session

log = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 1.0
LINE_SECONDS: Final = 10.0
SHARE: Final = 20.0
"""A look may take one part in so many of the time; with many jobs it is taken less often."""


@command("run", shared=(*WHERE, *OUTPUT, *ALWAYS))
@click.argument(
    "target",
    type=Text(),
    metavar="MODULE:APP",
    help="Where the program has its app; `:app` may be left out.",
)
@click.option("--name", metavar="NAME", help="Name of this host; unique. Default: made up.")
@click.option(
    "--http",
    type=Listen(),
    metavar="HOST:PORT",
    help="Serve the API there, too, with the program's tables and messages.",
)
@click.option("--plain", is_flag=True, help="Log lines instead of the picture.")
@click.pass_obj
def run(
    session: Session,
    target: str,
    name: str | None,
    http: tuple[str | None, int] | None,
    plain: bool,
) -> None:
    """Serve what a program defines: its jobs, its processors of feeds, with --http also the API.

    The module is looked for in the current folder, too. On a terminal a picture shows what runs,
    how far it is and what waits; elsewhere a line is logged when that changes. SIGTERM or Ctrl-C
    lets what runs end, and stops; a second one ends at once.
    """
    host, port = http or (None, None)
    app = app_for(target, session, host_name=name, host=host, port=port)
    picture = sys.stdout.isatty() and not plain and session.output != "json"
    level = session.given.get("log_level") or ("warning" if picture else app.settings.log_level)
    configure_logs(app.settings.log_format, level)
    announce, served = announcer(session.output), _served(app)

    def started(app: App, told: Announcement | None) -> None:
        announce(told)
        note(f"serving {served or 'nothing of its own'} as host {app.leases.name}")

    how = Hosting(started=started, http=http is not None, meanwhile=_draw if picture else _tell)
    hosting.run(app, how)


def _served(app: App) -> str:
    """What the program itself defines, without what every host serves."""
    processors = (one.unit_name for one in app.feeds.processors.values())
    return ", ".join(sorted([*app.jobs.registry.handlers, *processors]))


async def _draw(app: App) -> None:
    """Draw lanes and what runs on this host, in place."""
    renderer = Renderer()
    with screen(renderer, live=True) as draw:
        while True:
            begun = time.monotonic()
            try:
                lanes = await app.jobs.views.lanes()
                running = await app.jobs.views.running(app.leases.life.incarnation)
                draw(board(renderer, *_plain(lanes, running)))
            except RelevoError:
                pass  # what keeps the host from the database is logged where it matters
            await asyncio.sleep(max(LOOK_SECONDS, SHARE * (time.monotonic() - begun)))


async def _tell(app: App) -> None:
    """Log what lanes hold, when it has changed."""
    before: dict[str, tuple[int, ...]] = {}
    while True:
        begun = time.monotonic()
        try:
            for one in await app.jobs.views.lanes():
                now = (one.running, one.ready, one.suspended)
                if now != before.get(one.name, (0, 0, 0)):
                    log.info(
                        "jobs.lane", lane=one.name, running=one.running, ready=one.ready,
                        suspended=one.suspended,
                    )  # fmt: skip
                before[one.name] = now
        except RelevoError:
            pass
        await asyncio.sleep(max(LINE_SECONDS, SHARE * (time.monotonic() - begun)))


def _plain(*values: Any) -> Any:
    return msgspec.to_builtins(values)
