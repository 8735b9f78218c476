"""How many permits of a pool are granted, by the pool and by a host that has borrowed them.

python -m bench actors_pools
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Final

import uvloop

from bench import Figure
from relevo import App, settings
from relevo.testing.databases import TestDatabases

if TYPE_CHECKING:
    from relevo.governance import ResourcePool

HOW: Final = """
One host with a local PostgreSQL, fsync on. 500 callers each take and give back a permit of a pool
of 1,000, one after the other. Server: the pool stores each grant before it answers. Client: the
host has borrowed the permits before, and serves its callers. CPU is that of this process, without
the server's. Medians of three turns.
"""
CALLERS: Final = 500
ROUNDS: Final = 3


async def run() -> list[Figure]:
    return await asyncio.to_thread(uvloop.run, _measure())


async def _measure() -> list[Figure]:
    databases = TestDatabases()
    url = databases.create()
    try:
        app = App(settings=settings.load({"database_url": url, "log_level": "warning"}, environ={}))
        server = app.governance.pool("server", size=1_000)
        client = app.governance.pool("client", size=1_000, coordination="client")
        async with app.host():
            await _grants(server, 2 * CALLERS)
            await _grants(client, 2 * CALLERS)
            rates: dict[str, list[tuple[float, float]]] = {"server": [], "client": []}
            for _ in range(ROUNDS):
                rates["server"].append(await _grants(server, 5_000))
                rates["client"].append(await _grants(client, 100_000))
    finally:
        databases.drop(url)
        databases.close()
    figures = []
    for name, least in (("server", 5_000), ("client", 50_000)):
        grants = median(one for one, _ in rates[name])
        figures += [
            Figure(
                name=f"grants, {name} coordination",
                measured=grants,
                unit="/s",
                beside=least,
                bound=1,
            ),
            Figure(name="  CPU of each", measured=median(cpu for _, cpu in rates[name]), unit="µs"),
        ]
    return figures


async def _grants(pool: ResourcePool, count: int) -> tuple[float, float]:
    """Return grants per second, and microseconds of CPU for each."""
    numbers = iter(range(count))

    async def caller() -> None:
        for _ in numbers:
            async with pool.lease():
                pass

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count / (time.perf_counter() - began), (time.process_time() - cpu) / count * 1e6
