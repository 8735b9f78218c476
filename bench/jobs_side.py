"""Relevo's side of the measurement of jobs: `python -m bench.jobs_side ROLE URL [ARGUMENT …]`.

A first argument `--schema=NAME` has Relevo in another schema than `relevo`.
The roles are those of `bench.jobs_peers.run`, so that everybody is measured by the same clock.
BENCH_JOBS_DELETE=1 removes the record of a success, BENCH_JOBS_EVENTS says what the log gets,
BENCH_JOBS_OWNER=1 gives jobs an owner, with which each is a row until it is claimed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, Final
from uuid import UUID

from relevo import App, settings
from relevo.jobs.model import Lane
from relevo.kernel import serving, telemetry

DELETE: Final = os.environ.get("BENCH_JOBS_DELETE") == "1"
EVENTS: Final = os.environ.get("BENCH_JOBS_EVENTS", "none")
OWNER: Final = UUID(int=1) if os.environ.get("BENCH_JOBS_OWNER") == "1" else None


def now() -> float:
    """Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share."""
    return time.monotonic_ns() / 1e6


def payload(size: int, sent: float = 0.0) -> dict[str, Any]:
    return {"sent": sent, "text": "x" * (size - len('{"sent":0.0,"text":""}'))}


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def prepare(app: App) -> None:
    async with app.host():
        pass  # lanes and handlers are written


async def single(app: App, count: int, size: int, callers: int, _pool: int = 0) -> None:
    async def together(many: int) -> None:
        left = iter(range(many))

        async def caller() -> None:
            for _ in left:
                await app.jobs.submit("nothing", payload(size))

        await asyncio.gather(*(caller() for _ in range(callers)))

    async with app:
        await together(callers)
        began = now()
        await together(count)
        tell({"seconds": (now() - began) / 1000})


async def bulk(app: App, count: int, size: int, chunk: int) -> None:
    async with app:
        began = now()
        for at in range(0, count, chunk):
            many = min(chunk, count - at)
            datas = [payload(size) for _ in range(many)]
            await app.jobs.submit_many("nothing", datas, owner=OWNER)
        tell({"seconds": (now() - began) / 1000})


async def paced(app: App, count: int, size: int, per_second: int) -> None:
    async with app:
        began = now()
        async with asyncio.TaskGroup() as group:
            for at in range(count):
                await asyncio.sleep(max(0.0, began + at * 1000 / per_second - now()) / 1000)
                group.create_task(app.jobs.submit("nothing", payload(size, now())))
        tell({"seconds": (now() - began) / 1000})


class Tally:
    """What a worker has had."""

    def __init__(self) -> None:
        self.count, self.first, self.delays = 0, 0.0, list[float]()

    def state(self, **more: Any) -> dict[str, Any]:
        figures = {"count": self.count, "first": self.first, "cpu": time.process_time()}
        return {**figures, "delays": [], **more}

    async def report(self) -> None:
        told = 0
        while True:
            await asyncio.sleep(0.02)
            if self.count != told:
                told = self.count
                tell(self.state())


async def work(app: App, tally: Tally) -> None:
    tell(tally.state())
    await asyncio.to_thread(sys.stdin.readline)
    reporting = asyncio.create_task(tally.report())
    async with app.host():
        await asyncio.to_thread(sys.stdin.readline)
        reporting.cancel()
        tell(tally.state(delays=tally.delays))


async def main(*arguments: str) -> None:
    telemetry.configure_logs("json", "warning")
    given, (role, url, *rest) = _options(arguments)
    app, tally = App(settings=settings.load({"database_url": url, **given}, environ={})), Tally()
    app.jobs.registry.configure(Lane(name="default", events=EVENTS))  # type: ignore[arg-type]

    @app.job("nothing", auto_delete=DELETE)
    async def nothing(ctx: Any, sent: float, text: str) -> None:
        tally.count, tally.first = tally.count + 1, tally.first or now()
        if sent:
            tally.delays.append(now() - sent)

    if role == "work":
        await work(app, tally)
    else:
        roles: Any = {"prepare": prepare, "single": single, "bulk": bulk, "paced": paced}
        await roles[role](app, *map(int, rest))


def _options(arguments: tuple[str, ...]) -> tuple[dict[str, str], tuple[str, ...]]:
    if arguments[0].startswith("--schema="):
        return {"schema": arguments[0].partition("=")[2]}, arguments[1:]
    return {}, arguments


if __name__ == "__main__":
    serving.run(main(*sys.argv[1:]))
