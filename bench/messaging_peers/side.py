"""What the sides of brokers share: roles, clock and the tally of a worker.

Runs in the brokers' own environment and imports nothing of ours; `bench.jobs_peers.run` says what
the roles do. A broker has `prepare`, `send`, `send_many` and `consume`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


def now() -> float:
    """Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share."""
    return time.monotonic_ns() / 1e6


def body(size: int, sent: float = 0.0) -> bytes:
    return f"{sent:020.6f}".encode().ljust(size, b"x")


def sent_at(data: bytes) -> float:
    return float(data[:20])


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


class Tally:
    """What a worker has had."""

    def __init__(self) -> None:
        self.count, self.first, self.delays = 0, 0.0, list[float]()

    def add(self, data: bytes) -> None:
        self.count, self.first = self.count + 1, self.first or now()
        if sent := sent_at(data):
            self.delays.append(now() - sent)

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


async def single(broker: Any, count: int, size: int, callers: int, _pool: int = 0) -> None:
    async def together(many: int) -> None:
        left = iter(range(many))

        async def caller() -> None:
            for _ in left:
                await broker.send(body(size))

        await asyncio.gather(*(caller() for _ in range(callers)))

    await together(callers)
    began = now()
    await together(count)
    tell({"seconds": (now() - began) / 1000})


async def bulk(broker: Any, count: int, size: int, chunk: int) -> None:
    """Send in chunks; the first, which finds everything cold, is not timed."""
    await broker.send_many([body(size) for _ in range(chunk)])
    began = now()
    for at in range(chunk, count, chunk):
        await broker.send_many([body(size) for _ in range(min(chunk, count - at))])
    tell({"seconds": (now() - began) / 1000 * count / (count - chunk)})


async def paced(broker: Any, count: int, size: int, per_second: int) -> None:
    began = now()
    async with asyncio.TaskGroup() as group:
        for at in range(count):
            await asyncio.sleep(max(0.0, began + at * 1000 / per_second - now()) / 1000)
            group.create_task(broker.send(body(size, now())))
    tell({"seconds": (now() - began) / 1000})


async def work(broker: Any) -> None:
    tally = Tally()
    tell(tally.state())
    await asyncio.to_thread(sys.stdin.readline)
    working = [asyncio.create_task(broker.consume(tally)), asyncio.create_task(tally.report())]
    await asyncio.to_thread(sys.stdin.readline)
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    tell(tally.state(delays=tally.delays))


async def run(broker: Any, role: str, *rest: str) -> None:
    if role == "prepare":
        await broker.prepare()
    else:
        roles: Any = {"single": single, "bulk": bulk, "paced": paced, "work": work}
        await roles[role](broker, *map(int, rest))
