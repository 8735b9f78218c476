"""What a call of an actor costs on one host, beside a bare mailbox and a bare insert.

python -m bench actors
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import uvloop
from msgspec import Struct

from bench import Figure
from relevo import App, settings
from relevo.actors import Actor, Interface
from relevo.testing.databases import TestDatabases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HOW: Final = """
One process, one event loop, a local PostgreSQL with fsync on. Each call adds to a number, which is
the state. Beside volatile actors: a task that takes (number, future) from an `asyncio.Queue`; it
encodes nothing and bounds nothing. Beside an idle durable call: an insert of one row by the same
pool. Pipelined: 500 callers each await one call after the other; of 1,000 actors, each call goes to
another one. CPU is that of this process, without the server's. Medians of three turns.
"""
CALLERS: Final = 500
ACTORS: Final = 1_000
ROUNDS: Final = 3


class Counter(Interface):
    async def add(self, number: int) -> int: ...


class Count(Struct):
    number: int = 0


class BareMailbox:
    """An actor that is a queue and a task."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue()
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def add(self, number: int) -> int:
        answer: asyncio.Future[int] = self._loop.create_future()
        self._queue.put_nowait((number, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            number, answer = await self._queue.get()
            self._number += number
            answer.set_result(self._number)

    def close(self) -> None:
        self._task.cancel()


class Rate(Struct):
    """Calls per second, and microseconds of CPU per call."""

    per_second: float
    cpu: float


def define(app: App) -> None:
    for name in ("durable", "volatile"):
        persist: Any = name

        @app.actor(name, implements=Counter, persist=persist)
        class CounterActor(Actor[Count]):
            async def add(self, number: int) -> int:
                self.state.number += number
                return self.state.number


async def measured(add: Callable[[int], Awaitable[Any]], calls: int, callers: int) -> Rate:
    """Time calls; `add` gets the number of the call."""
    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:
            await add(number)

    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(callers)))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Rate(calls / seconds, cpu / calls * 1e6)


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[App]:
    app = App(settings=settings.load({"database_url": url, "log_level": "warning"}, environ={}))
    define(app)
    async with app.host():
        slots = app.actors.runtime.slots
        while len(slots) < app.settings.actors_slots:
            await asyncio.sleep(0.01)
        yield app


async def run() -> list[Figure]:
    return await asyncio.to_thread(uvloop.run, _measure())


async def _measure() -> list[Figure]:
    databases = TestDatabases()
    url = databases.create()
    try:
        async with serving(url) as app:
            return [*await _volatile(app), *await _durable(app), *await _stored(app)]
    finally:
        databases.drop(url)
        databases.close()


async def _turns(sides: dict[str, Callable[[], Awaitable[Rate]]]) -> dict[str, Rate]:
    found: dict[str, list[Rate]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            found[name].append(await side())
    return {
        name: Rate(median(r.per_second for r in rates), median(r.cpu for r in rates))
        for name, rates in found.items()
    }


async def _volatile(app: App) -> list[Figure]:
    figures = []
    boxes = [BareMailbox() for _ in range(ACTORS)]
    actors: list[Any] = [app.actor(Counter, n, type="volatile") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(0) for actor in actors))
    for what, callers, calls in (("sequential", 1, 3_000), ("pipelined", CALLERS, 10_000)):
        for count in (1, ACTORS):
            rates = await _turns({
                "actor": lambda: measured(lambda n: actors[n % count].add(1), calls, callers),  # noqa: B023
                "bare": lambda: measured(lambda n: boxes[n % count].add(1), calls, callers),  # noqa: B023
            })  # fmt: skip
            figures += _figures(
                f"volatile, {what}, {count:,} actors", rates["actor"],
                beside=rates["bare"].per_second, bound=0.3,
            )  # fmt: skip
    for box in boxes:
        box.close()
    return figures


async def _durable(app: App) -> list[Figure]:
    figures = []
    actors: list[Any] = [app.actor(Counter, n, type="durable") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(0) for actor in actors))
    for count in (1, ACTORS):
        rates = await _turns({
            "actor": lambda: measured(lambda n: actors[n % count].add(1), 10_000, CALLERS),  # noqa: B023
        })  # fmt: skip
        figures += _figures(f"durable, pipelined, {count:,} actors", rates["actor"])
    await app.database.write("create table if not exists public.bench_bare (number bigint)")
    insert = "insert into public.bench_bare values ($1)"
    rates = await _turns({
        "actor": lambda: measured(lambda _: actors[0].add(1), 300, 1),
        "bare": lambda: measured(lambda n: app.database.write(insert, n), 300, 1),
    })  # fmt: skip
    return figures + _figures("durable, idle", rates["actor"], beside=rates["bare"].per_second)


async def _stored(app: App) -> list[Figure]:
    async def activate() -> Rate:
        for slot in app.actors.runtime.slots.values():
            for activation in list(slot.activations.values()):
                activation.deactivate("requested")
        while app.actors.runtime.activations:
            await asyncio.sleep(0.01)
        return await measured(
            lambda n: app.actor(Counter, n, type="durable").add(0), ACTORS, CALLERS
        )

    rates = await _turns({"activate": activate})
    return _figures("activated from the store", rates["activate"])


def _figures(name: str, rate: Rate, **options: Any) -> list[Figure]:
    return [
        Figure(name=name, measured=rate.per_second, unit="calls/s", **options),
        Figure(name="  CPU of it", measured=rate.cpu, unit="µs"),
    ]
