"""Says what a stopping host waits for, again and again, and how to end it at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from relevo.cli.output.printing import note, printable
from relevo.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.app import App
    from relevo.kernel.supervision import Draining

FIRST_SECONDS: Final = 0.5
"""A host that stops within that time says nothing."""
AGAIN_SECONDS: Final = 5.0
NAMES_MAX: Final = 5


@asynccontextmanager
async def drain_notes(app: App, stopping: asyncio.Event) -> AsyncIterator[None]:
    """Say on standard error what the host waits for, from `stopping` to the end of the block."""
    notes = asyncio.ensure_future(_say_often(app, stopping))
    try:
        yield
    finally:
        notes.cancel()
        with suppress(asyncio.CancelledError):
            await notes


async def _say_often(app: App, stopping: asyncio.Event) -> None:
    await stopping.wait()
    await asyncio.sleep(FIRST_SECONDS)
    while True:
        note(sentence(_draining(app)))
        await asyncio.sleep(AGAIN_SECONDS)


def _draining(app: App) -> Draining | None:
    try:
        return app.parts.draining or app.leases.stopping
    except Conflict:  # it holds none any more
        return None


def sentence(draining: Draining | None) -> str:
    """Return what a stopping host waits for, in one line."""
    end = "Ctrl-C again ends it at once; other hosts then take the work over"
    if draining is None or not draining.work:
        return f"stopping: closing connections. {end}"
    names = ", ".join(printable(name) for name in draining.work[:NAMES_MAX])
    more = len(draining.work) - NAMES_MAX
    names += f" and {more} more" if more > 0 else ""
    return f"stopping: waiting up to {draining.seconds_left:.0f} s for {names}. {end}"
