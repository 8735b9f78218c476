"""`relevo feed run`: a host for processors that a program defines, or a short run of them (18)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from relevo.app import App
from relevo.cli.generic.values import Instant, Text
from relevo.cli.hosts.programs import load, require_told, tell_program
from relevo.cli.hosts.signals import StopSignals
from relevo.cli.options import ALWAYS, WHERE, command
from relevo.cli.output.printing import note
from relevo.errors import HostSuperseded
from relevo.feed import Processor
from relevo.kernel.telemetry import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.cli.session import Session
    from relevo.feed.reading.bounds import Until


class _End(click.ParamType[datetime | str]):
    """`now`, or an instant."""

    name = "now|time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | str:
        if value == "now":
            return "now"
        return Instant().convert(value, param, ctx)


@command("run", shared=(*WHERE, *ALWAYS))
@click.argument(
    "target",
    type=Text(),
    metavar="MODULE:NAME",
    help="Where the program has a processor, or an app with processors: all of them.",
)
@click.option(
    "--until",
    type=_End(),
    metavar="END",
    help="End when all that is committed now, or up to a time, is processed. Default: never.",
)
@click.pass_obj
def run(session: Session, target: str, until: Until | None) -> None:
    """Serve processors of a program as a host, until a signal or until they are done.

    The current folder is searched for the module, too. Options, environment and settings file
    select the database, unless the program's app does. Work that is not done when a run
    ends stays for the next one: the state is in the leases.
    """
    tell_program(session)
    app, processors = _found(target)
    require_told(app, session)
    level = session.given.get("log_level") or app.settings.log_level or "warning"
    configure_logs(app.settings.log_format, level)
    asyncio.run(_serve(app, processors, until))


def _found(target: str) -> tuple[App, Sequence[Processor]]:
    module, name = load(target)
    match vars(module).get(name):
        case App() as app if app.feeds.processors:
            return app, list(app.feeds.processors.values())
        case Processor() as processor:
            for one in vars(module).values():
                if isinstance(one, App) and processor in one.feeds.processors.values():
                    return one, [processor]
            raise click.UsageError(f"{module.__name__} has no app that {name!r} is a processor of")
    raise click.UsageError(
        f"{name!r} of {module.__name__} is neither a processor nor an app with one"
    )


async def _serve(app: App, processors: Sequence[Processor], until: Until | None) -> None:
    app.feeds.only(processors)
    if until is not None:
        for processor in processors:
            processor.run_until(until)
    with StopSignals() as signals:
        try:
            async with app.host():
                signals.starting = False
                names = ", ".join(processor.unit_name for processor in processors)
                note(f"serving {names} as host {app.leases.name}")
                await _until_over(app, processors if until is not None else (), signals)
        except asyncio.CancelledError:
            if not signals.asked.is_set():
                raise


async def _until_over(app: App, ending: Sequence[Processor], signals: StopSignals) -> None:
    superseded = asyncio.ensure_future(app.leases.superseded.wait())
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(signals.asked.wait()), superseded]
    if ending:
        waits.append(asyncio.ensure_future(_all_completed(ending)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            if wait.done():
                wait.result()
    finally:
        for wait in waits:
            wait.cancel()
    if superseded.done() and not superseded.cancelled():
        raise HostSuperseded(
            f"another process took over as host {app.leases.name!r}, so this one has stopped"
        )


async def _all_completed(processors: Sequence[Processor]) -> None:
    for processor in processors:
        await processor.completed()
