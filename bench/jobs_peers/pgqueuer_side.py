"""One side of a measurement of pgqueuer: `python pgqueuer_side.py ROLE URL [ARGUMENT …]`.

Runs in pgqueuer's own environment and imports nothing of ours. `run.py` says what the roles do;
harness.mjs is the same for the peers of Node.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta
from typing import Any, Final

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgPoolDriver  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.qm import QueueManager  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.queries import Queries  # type: ignore[import-not-found,unused-ignore]

BATCH: Final = 1_000
"""The default of 10 was far slower when tried, and from 100 on little changed."""
POOL: Final = 10
"""The default of the driver."""


def now() -> float:
    """Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share."""
    return time.monotonic_ns() / 1e6


def payload(size: int, sent: float = 0.0) -> bytes:
    empty = json.dumps({"sent": sent, "text": ""})
    return f"{empty[:-2]}{'x' * (size - len(empty))}{empty[-2:]}".encode()


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def prepare(pool: asyncpg.Pool) -> None:
    await Queries(AsyncpgPoolDriver(pool)).install()


async def single(pool: asyncpg.Pool, count: int, size: int, callers: int, _: int) -> None:
    queries = Queries(AsyncpgPoolDriver(pool))

    async def together(many: int) -> None:
        left = iter(range(many))

        async def caller() -> None:
            for _ in left:
                await queries.enqueue("nothing", payload(size))

        await asyncio.gather(*(caller() for _ in range(callers)))

    await together(callers)
    began = now()
    await together(count)
    tell({"seconds": (now() - began) / 1000})


async def bulk(pool: asyncpg.Pool, count: int, size: int, chunk: int) -> None:
    queries = Queries(AsyncpgPoolDriver(pool))
    began = now()
    for at in range(0, count, chunk):
        many = min(chunk, count - at)
        made = [payload(size) for _ in range(many)]
        await queries.enqueue(["nothing"] * many, made, [0] * many)
    tell({"seconds": (now() - began) / 1000})


async def paced(pool: asyncpg.Pool, count: int, size: int, per_second: int) -> None:
    queries = Queries(AsyncpgPoolDriver(pool))
    began = now()
    async with asyncio.TaskGroup() as group:
        for at in range(count):
            await asyncio.sleep(max(0.0, began + at * 1000 / per_second - now()) / 1000)
            group.create_task(queries.enqueue("nothing", payload(size, now())))
    tell({"seconds": (now() - began) / 1000})


async def work(pool: asyncpg.Pool) -> None:
    count, first, delays = 0, 0.0, list[float]()

    async def handle(job: Any) -> None:
        nonlocal count, first
        count, first = count + 1, first or now()
        if sent := json.loads(job.payload)["sent"]:
            delays.append(now() - sent)

    def state(**more: Any) -> dict[str, Any]:
        return {"count": count, "first": first, "cpu": time.process_time(), "delays": [], **more}

    async def report() -> None:
        told = 0
        while True:
            await asyncio.sleep(0.02)
            if count != told:
                told = count
                tell(state())

    manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))
    manager.entrypoint("nothing")(handle)
    tell(state())
    await asyncio.to_thread(sys.stdin.readline)
    running = asyncio.create_task(manager.run(timedelta(seconds=1), batch_size=BATCH))
    reporting = asyncio.create_task(report())
    await asyncio.to_thread(sys.stdin.readline)
    reporting.cancel()
    tell(state(delays=delays))
    manager.shutdown.set()
    await running


async def main(role: str, url: str, *rest: str) -> None:
    roles: Any = {"prepare": prepare, "single": single, "bulk": bulk, "paced": paced, "work": work}
    size = int(rest[3]) if role == "single" else POOL
    async with asyncpg.create_pool(url, min_size=size, max_size=size) as pool:
        await roles[role](pool, *map(int, rest))


if __name__ == "__main__":
    logging.disable(logging.INFO)
    uvloop.run(main(*sys.argv[1:]))
