"""The governance kit: an exclusive writer, grants of a pool, and a lane under a budget."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import Figure
from bench.actor_parts.common import CALLERS, ROUNDS, app_of, measured, scaled, turns
from relevo.governance import CsvSink
from relevo.jobs.model import Lane

if TYPE_CHECKING:
    from relevo import App
    from relevo.governance import ResourcePool
    from relevo.governance.pools import Coordination

WRITERS: Final = 10_000
BATCH: Final = 500
JOBS: Final = 50_000
"""Half a second's worth for a lane alone: permits change hands several times."""
TIGHT_JOBS: Final = {0.0: 20_000, 0.002: 5_000, 0.02: 1_000}
"""How many jobs that sleep so many seconds."""


async def writer(app: App) -> list[Figure]:
    """Measure 10,000 callers of one writer beside batches that nobody asked for."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        events = app.governance.writer(
            "events", sink=CsvSink(f"{folder}/{{key}}.csv", ("number", "text")),
            max_batch=BATCH,
        )["one"]  # fmt: skip
        await events.write({"number": 0, "text": "first"})
        batches = BareBatches(Path(folder) / "batches.csv")
        rates = await turns({
            "writer": lambda: measured(
                lambda n: events.write({"number": n, "text": "some text"}),
                2 * scaled(WRITERS), scaled(WRITERS),
            ),
            "batches": lambda: measured(batches.write, 2 * scaled(WRITERS), scaled(WRITERS)),
        })  # fmt: skip
        bare = median([await asyncio.to_thread(_bare, Path(folder)) for _ in range(ROUNDS)])
    rate = rates["writer"].per_second
    return [
        Figure(name=f"events written, {scaled(WRITERS):,} callers", measured=rate, unit="events/s",
               beside=20_000.0, bound=1.0),
        Figure(name="  beside bare batches whose callers wait", measured=rate, unit="events/s",
               beside=rates["batches"].per_second, bound=0.5),
        Figure(name="  beside bare batches that nobody waits for", measured=rate, unit="events/s",
               beside=bare),
        Figure(name="  CPU of it", measured=rates["writer"].cpu, unit="µs"),
        Figure(name="  CPU of the bare batches", measured=rates["batches"].cpu, unit="µs"),
    ]  # fmt: skip


class BareBatches:
    """A list, a thread and a future for each caller: batches of what waits, made durable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def write(self, number: int) -> None:
        """Return when a line is durable."""
        durable: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((number, durable))
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write())
        await durable

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            await asyncio.to_thread(self._append, [number for number, _ in batch])
            for _, durable in batch:
                durable.set_result(None)

    def _append(self, numbers: list[int]) -> None:
        with self._path.open("a", newline="", encoding="utf-8") as file:
            file.writelines(f"{number},some text\r\n" for number in numbers)
            file.flush()
            os.fsync(file.fileno())


def _bare(folder: Path) -> float:
    """Append batches to a file, each made durable; return events per second."""
    events = 2 * scaled(WRITERS)
    began = time.perf_counter()
    with (folder / "bare.csv").open("a", newline="", encoding="utf-8") as file:
        for first in range(0, events, BATCH):
            file.writelines(f"{n},some text\r\n" for n in range(first, first + BATCH))
            file.flush()
            os.fsync(file.fileno())
    return events / (time.perf_counter() - began)


async def grants(app: App) -> list[Figure]:
    """Measure permits that are taken and given back, by who grants them."""
    sides: dict[Coordination, tuple[int, float]] = {
        "server": (5_000, 5_000.0), "client": (100_000, 50_000.0),
    }  # fmt: skip
    found = []
    for coordination, (count, bound) in sides.items():
        pool = app.governance.pool(
            f"bench-{coordination}", size=2 * CALLERS, coordination=coordination
        )

        async def lease(_: int, pool: ResourcePool = pool) -> None:
            async with pool.lease():
                pass

        await measured(lease, 2 * CALLERS, CALLERS)
        rate = (await turns({"pool": lambda: measured(lease, scaled(count), CALLERS)}))["pool"]  # noqa: B023
        found += [
            Figure(name=f"grants of a pool, {coordination} coordination",
                   measured=rate.per_second, unit="grants/s", beside=bound, bound=1.0),
            Figure(name="  CPU of it", measured=rate.cpu, unit="µs"),
        ]  # fmt: skip
    return found


async def budget(url: str) -> list[Figure]:
    """Measure lanes under a pool beside lanes without one that have as many slots as permits."""
    return [
        await _beside(url, "of a lane under a budget, beside the lane alone", 0.0, JOBS,
                      governed=Lane(name="governed", events="none", pool="wide"),
                      free=Lane(name="free", events="none")),
        *[
            await _beside(
                url, f"of {1_000 * seconds:g} ms, 4 permits for 8 slots, beside 4 slots",
                seconds, jobs,
                governed=Lane(name="governed", slots=8, events="none", pool="narrow"),
                free=Lane(name="free", slots=4, events="none"),
            )
            for seconds, jobs in TIGHT_JOBS.items()
        ],
    ]  # fmt: skip


async def _beside(
    url: str, what: str, seconds: float, jobs: int, *, governed: Lane, free: Lane
) -> Figure:
    rates: dict[str, list[float]] = {"governed": [], "free": []}
    for _ in range(ROUNDS):
        for lane in (governed, free):
            rates[lane.name].append(await _drained(url, lane, seconds, scaled(jobs)))
    return Figure(
        name=f"jobs {what}", measured=median(rates["governed"]), unit="jobs/s",
        beside=median(rates["free"]), bound=0.75,
    )  # fmt: skip


async def _drained(url: str, lane: Lane, seconds: float, jobs: int) -> float:
    """Let a host do jobs that were there before it began; return jobs per second."""
    app = app_of(url)
    app.governance.pool("wide", size=1_000)
    app.governance.pool("narrow", size=4)
    app.jobs.configure(lane)
    done = asyncio.Event()
    times: list[float] = []

    @app.job(f"bench-{lane.name}", lane=lane.name)
    async def sleep(n: int) -> None:
        if seconds:
            await asyncio.sleep(seconds)
        times.append(time.perf_counter())
        if len(times) == jobs:
            done.set()

    async with app:
        for first in range(0, jobs, 500):
            await app.jobs.submit_many(
                f"bench-{lane.name}", [{"n": n} for n in range(first, min(first + 500, jobs))]
            )
    async with app.host():
        async with asyncio.timeout(120):
            await done.wait()
    first = jobs // 5
    return (jobs - first) / (times[-1] - times[first])
