"""Whether the cost of a job depends on how many wait: the same drain beside ever more jobs.

`BENCH_GROWTH_MAX` is the largest number that waits (default a million).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from bench import Figure
from bench.costs import children, on_cpu
from relevo import App, settings
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALLEST: Final = 1_000
LARGEST: Final = int(os.environ.get("BENCH_GROWTH_MAX", "1000000"))
WARM_UP: Final = 1_000
DRAINED: Final = 4_000
CHUNK: Final = 10_000
OWNERS: Final[Mapping[str, UUID | None]] = {"plain jobs": None, "owned jobs": UUID(int=1)}

HOW: Final = f"""
So many jobs of one handler wait, a host begins to run them, and the CPU of host and PostgreSQL
is that of {DRAINED:,}, after {WARM_UP:,} others. Plain jobs that are submitted by the thousand wait
in batches, owned ones as rows. Embedded PostgreSQL, fsync on.
"""


class DrainCost(Struct, frozen=True):
    """Microseconds for each job."""

    clock: float
    host: float
    server: float


async def run() -> list[Figure]:
    """Measure both kinds of jobs at every size."""
    telemetry.configure_logs("json", "warning")
    figures = []
    for kind, owner in OWNERS.items():
        costs = await _grown(owner)
        first = costs[min(costs)]
        for size, cost in costs.items():
            name = f"{kind}, {size:,} more wait"
            figures += [
                Figure(name=f"{name}: PostgreSQL a job", measured=cost.server, unit="µs",
                       beside=first.server, bound=1.3, sense="at_most"),
                Figure(name="  host", measured=cost.host, unit="µs", beside=first.host),
                Figure(name="  clock", measured=cost.clock, unit="µs", beside=first.clock),
            ]  # fmt: skip
    return figures


async def _grown(owner: UUID | None) -> dict[int, DrainCost]:
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            costs, submitted, size = {}, 0, SMALLEST
            while size <= LARGEST:
                await _submit(server.url, size + WARM_UP + DRAINED - submitted, owner)
                submitted, costs[size] = size, await _drained(server.url)
                size *= 10
            return costs
        finally:
            await asyncio.to_thread(server.leave)


async def _submit(url: str, count: int, owner: UUID | None) -> None:
    app = App(settings=settings.load({"database_url": url}, environ={}))
    async with app:
        for at in range(0, count, CHUNK):
            data: list[Any] = [{"text": "x" * 180}] * min(CHUNK, count - at)
            await app.jobs.submit_many("drained", data, owner=owner)


async def _drained(url: str) -> DrainCost:
    connection = await asyncpg.connect(url)
    await connection.execute("vacuum analyze")
    postmaster = int(
        (await connection.fetchval("select pg_read_file('postmaster.pid')")).split()[0]
    )
    await connection.close()
    app = App(settings=settings.load({"database_url": url}, environ={}))
    marks: list[tuple[float, float, float]] = []
    count, over = 0, asyncio.Event()

    @app.job("drained")
    async def drained(text: str) -> None:
        nonlocal count
        count += 1
        if count in (WARM_UP, WARM_UP + DRAINED):
            server = sum(on_cpu(pid) for pid in children(postmaster))
            marks.append((time.perf_counter(), time.process_time(), server))
            if len(marks) == 2:
                over.set()

    async with app.host():
        await over.wait()
    spent = [(after - before) / DRAINED * 1e6 for before, after in zip(*marks, strict=True)]
    return DrainCost(*spent)
