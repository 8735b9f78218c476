"""What actors and the governance kit cost, beside bare means and other actors for Python.

python -m bench actors
BENCH_ACTORS_QUICK=1 python -m bench actors             a fifth of everything, one round
BENCH_ACTORS_STEPS="volatile kit" python -m bench actors
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from bench.actor_parts import asks, commits, handover, kit, stored, transport
from bench.actor_parts.common import QUICK, ROUNDS, app_of, served
from relevo.kernel import serving, telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from bench import Figure

STEPS: Final = os.environ.get(
    "BENCH_ACTORS_STEPS",
    "volatile durable activations commits kit budget handover idle reminders transport",
).split()
HOW: Final = f"""
One process, one event loop, an embedded PostgreSQL with fsync on. Each call adds to a number,
which is the state. Beside volatile actors: a task that takes (number, future) from a bounded
`asyncio.Queue`, which encodes nothing and has no deadlines; and xoscar and Pykka, each in a process
of its own. Beside an idle durable call: an insert of one row by the same pool. Pipelined: 500
callers each await one call after the other; of 1,000 actors, each call goes to another one. CPU is
that of this process, without the server's. A hand-over: three apps in this process, of which one
only calls. Remote asks: both ends in one process over a Unix socket, beside the same frames on a
bare protocol. `beside` is the promised number where there is no other side. Medians of {ROUNDS}
rounds in turns{"; a fifth of the calls" if QUICK else ""}.
"""


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        embedded = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            serving.spare_the_collector()  # as `relevo run` does
            return await asyncio.to_thread(uvloop.run, _measure(embedded.url))
        finally:
            await asyncio.to_thread(embedded.leave)


async def _measure(url: str) -> list[Figure]:
    figures: list[Figure] = []
    async with served(app_of(url)) as app:
        if "volatile" in STEPS:
            figures += await asks.volatile(app)
        if "durable" in STEPS:
            figures += await asks.durable(app)
        if "activations" in STEPS:
            figures += await asks.activations(app)
        if "commits" in STEPS:
            figures += await commits.fences(app, url)
        if "kit" in STEPS:
            figures += await kit.writer(app) + await kit.grants(app)
    if "budget" in STEPS:
        figures += await kit.budget(url)
    if "handover" in STEPS:
        figures += await handover.handover(url)
    async with served(app_of(url)) as app:
        if "idle" in STEPS:
            figures += await stored.idle(app, url)
        if "reminders" in STEPS:
            figures += await stored.reminders(app, url)
    if "transport" in STEPS:
        figures += await transport.measure("uvloop")
    return figures
