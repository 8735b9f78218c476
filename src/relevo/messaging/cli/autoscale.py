"""`relevo consumer autoscale`: as many processes as consumers need, on one machine."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Final

import click
import msgspec

from relevo.cli.generic.values import Text
from relevo.cli.hosts.programs import app_for
from relevo.cli.hosts.signals import StopSignals
from relevo.cli.options import ALWAYS, OUTPUT, WHERE, command
from relevo.cli.output.printing import note
from relevo.errors import NotFound, RelevoError
from relevo.kernel.telemetry import configure_logs
from relevo.messaging.operating.scaling import Scaler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.app import App
    from relevo.cli.session import Session
    from relevo.messaging.model import Scaling

LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 60.0


@command("autoscale", shared=(*WHERE, *OUTPUT, *ALWAYS))
@click.argument("name", type=Text(), metavar="NAME", help="The consumers.")
@click.argument(
    "target",
    type=Text(),
    metavar="MODULE:APP",
    help="Module and variable of the program's app; `:app` is the default.",
)
@click.option("--min", "low", type=int, metavar="N", help="Fewest processes. Default: as defined.")
@click.option("--max", "high", type=int, metavar="N", help="Most processes. Default: as defined.")
@click.pass_obj
def autoscale(session: Session, name: str, target: str, low: int | None, high: int | None) -> None:
    """Start and stop processes that serve consumers, as many as they need.

    How many follows from the backlog, the rate of arrivals and the service targets. A process that
    is not needed any more is told to stop, and finishes what it has begun.
    """
    app = app_for(target, session)
    definition = app.messaging.registry.consumers.get(name)
    if definition is None:
        known = ", ".join(sorted(app.messaging.registry.consumers)) or "none"
        raise NotFound(f"the program has no consumers {name!r}; it has {known}")
    given = {"min_replicas": low, "max_replicas": high}
    scaling = msgspec.structs.replace(
        definition.scaling, **{key: value for key, value in given.items() if value is not None}
    )
    level = app.settings.log_level or "warning"
    configure_logs(app.settings.log_format, level)
    run = [sys.executable, "-m", "relevo.cli", "run", target, "--only", name, "--plain"]
    asyncio.run(_scale(app, name, scaling, [*run, *_where(app)]))


def _where(app: App) -> Sequence[str]:
    url = app.settings.database_url
    return () if url is None else ("--database", url)


async def _scale(app: App, name: str, scaling: Scaling, run: Sequence[str]) -> None:
    processes: list[asyncio.subprocess.Process] = []
    with StopSignals() as signals:
        signals.starting = False
        async with app:
            scaler = Scaler(app.database)
            try:
                while not signals.asked.is_set():
                    processes = [one for one in processes if one.returncode is None]
                    wanted, by = await _wanted(scaler, name, scaling, len(processes))
                    await _adjust(processes, wanted, by, run)
                    await _pause(signals)
            finally:
                await _stop(processes)


async def _wanted(scaler: Scaler, name: str, scaling: Scaling, now: int) -> tuple[int, str]:
    try:
        found = await scaler.desired(name, scaling)
    except NotFound:  # no host has served them yet
        return max(1, scaling.min_replicas), "first"
    except RelevoError as error:
        note(f"cannot look now: {error.message}")
        return now, "unknown"
    return found.value, found.by


async def _adjust(
    processes: list[asyncio.subprocess.Process], wanted: int, by: str, run: Sequence[str]
) -> None:
    if wanted != len(processes):
        note(f"{len(processes)} -> {wanted} processes, by {by}")
    while len(processes) < wanted:
        processes.append(await asyncio.create_subprocess_exec(*run))
    for one in processes[wanted:]:
        one.send_signal(signal.SIGTERM)
    del processes[wanted:]


async def _pause(signals: StopSignals) -> None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await signals.asked.wait()
    except TimeoutError:
        return


async def _stop(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for one in processes:
        if one.returncode is None:
            one.send_signal(signal.SIGTERM)
    ends = [asyncio.ensure_future(one.wait()) for one in processes]
    if ends:
        await asyncio.wait(ends, timeout=STOP_SECONDS)
    for one in processes:
        if one.returncode is None:
            one.kill()
