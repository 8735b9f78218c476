"""How many jobs a second go all the way through the router, and how soon an offer is there."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench import Figure, router_http, router_matching
from relevo import App, settings
from relevo.kernel import serving, telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

WORKERS: Final = 1_000
JOBS: Final = int(os.environ.get("BENCH_ROUTER_JOBS", "20000"))
CALLERS: Final = 1_000
LATENCIES: Final = 500
ROUNDS: Final = 3

HOW: Final = f"""
{router_matching.HOW.strip()}
End to end: embedded PostgreSQL, fsync on, one process that is host, matcher and client; {WORKERS:,}
workers that take one job each, {JOBS:,} jobs, {CALLERS:,} callers that create them and as many that
accept, complete and close what the event log says was offered; medians of {ROUNDS} rounds. Latency:
50 jobs a second, from the call that creates a job to the moment its offer is read from the log.
{router_http.HOW.strip()}
"""


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    serving.spare_the_collector()  # as processes that only serve do
    figures = await router_matching.run()
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            figures += await _in_process(server.url)
            figures += await router_http.measure(server.url, Path(folder))
        finally:
            await asyncio.to_thread(server.leave)
    return figures


async def _in_process(url: str) -> list[Figure]:
    app = App(settings=settings.load({"database_url": url}))
    async with app.host():
        await prepare(app)
        rates = [await _round(app, turn) for turn in range(ROUNDS)]
        delays = sorted(await _delays(app))
    return [
        Figure(
            name="full jobs through the Python API",
            measured=statistics.median(rates),
            unit="jobs/s",
            beside=2_000.0,
            bound=1.0,
        ),
        Figure(
            name="created → offer visible, median",
            measured=1_000 * statistics.median(delays),
            unit="ms",
            beside=20.0,
            bound=1.0,
            sense="at_most",
        ),
        Figure(
            name="created → offer visible, p99",
            measured=1_000 * delays[int(len(delays) * 0.99)],
            unit="ms",
            beside=100.0,
            bound=1.0,
            sense="at_most",
        ),
    ]


async def prepare(app: App) -> None:
    """Make a queue and register the workers."""
    router = app.router
    await router.set_distribution_policy("bench", offer_ttl=600.0)
    await router.set_queue("bench", distribution_policy="bench")
    await asyncio.gather(
        *(
            router.register_worker(
                f"w{n}", queues=["bench"], channels={"call": 1}, labels={"team": n % 7}
            )
            for n in range(WORKERS)
        )
    )


class _Offers:
    """What the event log says was offered, for whoever answers next."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.waiting: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        self.seen: dict[str, float] = {}

    async def follow(self, started: asyncio.Event) -> None:
        after = (await self._app.events.read(start="now")).continuation
        started.set()
        while True:
            page = await self._app.events.read(after, max_items=2_000, wait=1.0)
            after = page.continuation
            now = time.perf_counter()
            for event in page.events:
                if event.type == "relevo.router.offer.issued":
                    told: dict[str, Any] = event.data
                    self.seen[told["jobId"]] = now
                    self.waiting.put_nowait((told["workerId"], told["offerId"], told["jobId"]))


async def _round(app: App, turn: int) -> float:
    router, offers, left = app.router, _Offers(app), JOBS
    finished, started = asyncio.Event(), asyncio.Event()
    numbers = iter(range(JOBS))

    async def create() -> None:
        for number in numbers:
            await router.create_job(
                "call", queue="bench", job_id=f"{turn}-{number}", labels={"number": number}
            )

    async def serve() -> None:
        nonlocal left
        while True:
            worker, offer, job = await offers.waiting.get()
            accepted = await router.accept_offer(worker, offer)
            await router.complete_job(job, accepted.assignment_id)
            await router.close_job(job, accepted.assignment_id)
            left -= 1
            if not left:
                finished.set()

    tasks = [asyncio.create_task(offers.follow(started))]
    await started.wait()
    tasks += [asyncio.create_task(serve()) for _ in range(CALLERS)]
    begun = time.perf_counter()
    await asyncio.gather(*(create() for _ in range(CALLERS)))
    await finished.wait()
    seconds = time.perf_counter() - begun
    for task in tasks:
        task.cancel()
    return JOBS / seconds


async def _delays(app: App) -> list[float]:
    router, offers, started = app.router, _Offers(app), asyncio.Event()
    follower = asyncio.create_task(offers.follow(started))
    await started.wait()
    created: dict[str, float] = {}

    async def one(number: int) -> None:
        created[f"d{number}"] = time.perf_counter()
        await router.create_job("call", queue="bench", job_id=f"d{number}")

    tasks = []
    begun = time.perf_counter()
    for number in range(LATENCIES):
        await asyncio.sleep(max(0.0, begun + number / 50 - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
        while not offers.waiting.empty():
            tasks.append(asyncio.create_task(_finish(router, offers.waiting.get_nowait())))
    await asyncio.gather(*tasks)
    while len(offers.seen) < LATENCIES:
        await asyncio.sleep(0.01)
    follower.cancel()
    return [offers.seen[job] - at for job, at in created.items()]


async def _finish(router: Any, offered: tuple[str, str, str]) -> None:
    worker, offer, job = offered
    accepted = await router.accept_offer(worker, offer)
    await router.complete_job(job, accepted.assignment_id)
    await router.close_job(job, accepted.assignment_id)
