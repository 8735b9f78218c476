"""An app that counts, and the time and CPU of calls."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from contextlib import asynccontextmanager
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from bench import Figure
from relevo import App, settings
from relevo.actors import Actor, Interface, Tick, reminder_handler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

QUICK: Final = os.environ.get("BENCH_ACTORS_QUICK") == "1"
"""Fewer calls and one round: a look whether everything runs, and how about it stands."""
CALLERS: Final = 500
ACTORS: Final = 1_000
ROUNDS: Final = 1 if QUICK else 3
FIRED: list[float] = []
"""Seconds by which each reminder of `Reminded` was late."""


def scaled(count: int) -> int:
    """Return a number of calls for this run."""
    return max(1, count // 5) if QUICK else count


class Counter(Interface):
    async def add(self, number: int) -> int: ...


class Count(Struct):
    number: int = 0


class Rate(Struct):
    """Calls per second, and microseconds of CPU per call."""

    per_second: float
    cpu: float


def define(app: App) -> None:
    """Define the types that are measured."""
    for name in ("durable", "volatile"):
        persist: Any = name

        @app.actor(name, implements=Counter, persist=persist)
        class CounterActor(Actor[Count]):
            async def add(self, number: int) -> int:
                self.state.number += number
                return self.state.number

    @app.actor("reminded", implements=Counter)
    class Reminded(Actor[Count]):
        async def add(self, number: int) -> int:
            return number

        @reminder_handler
        async def on_due(self, tick: Tick[None]) -> None:
            FIRED.append(
                (datetime.now(tick.scheduled_at.tzinfo) - tick.scheduled_at).total_seconds()
            )


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


def app_of(url: str, **options: Any) -> App:
    """Return an app that counts."""
    values = {"database_url": url, "log_level": "warning", **options}
    app = App(settings=settings.load(values, environ={}))
    define(app)
    return app


@asynccontextmanager
async def served(app: App, **options: Any) -> AsyncIterator[App]:
    """Let an app serve alone; it owns every slot."""
    async with app.host(**options):
        slots = app.actors.runtime.slots
        while sum(group == "default" for group, _ in slots) < app.settings.actors_slots:
            await asyncio.sleep(0.01)
        yield app


async def turns(sides: dict[str, Callable[[], Awaitable[Rate]]]) -> dict[str, Rate]:
    """Let the sides take turns; return medians."""
    found: dict[str, list[Rate]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            found[name].append(await side())
    return {
        name: Rate(median(r.per_second for r in rates), median(r.cpu for r in rates))
        for name, rates in found.items()
    }


def figures(name: str, rate: Rate, unit: str = "calls/s", **options: Any) -> list[Figure]:
    """Return a rate, and the CPU that one call took."""
    return [
        Figure(name=name, measured=rate.per_second, unit=unit, **options),
        Figure(name="  CPU of it", measured=rate.cpu, unit="µs"),
    ]
