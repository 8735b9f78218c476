"""How long callers wait while a host hands all of its slots to another."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from bench import Figure
from bench.actor_parts.common import ACTORS, Counter, app_of, served

if TYPE_CHECKING:
    from relevo import App

CALLERS: Final = 20
PAUSE_SECONDS: Final = 0.005


async def handover(url: str) -> list[Figure]:
    """Measure the longest call from before the hand-over until after it."""
    giver, taker, client = app_of(url), app_of(url), app_of(url)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        serves = AsyncExitStack()
        await serves.enter_async_context(served(giver, name="giver"))
        actors: list[Any] = [client.actor(Counter, n, type="durable") for n in range(ACTORS)]
        await asyncio.gather(*(actor.add(1) for actor in actors))
        load = asyncio.create_task(_longest(actors))
        await stack.enter_async_context(taker.host(name="taker"))
        began = time.perf_counter()
        await serves.aclose()
        await _until_all(taker)
        took = time.perf_counter() - began
        await asyncio.sleep(0.5)
        load.cancel()
        longest, calls = await load
    return [
        Figure(name=f"256 slots handed over, longest of {calls:,} calls", measured=longest,
               unit="s", beside=1.0, bound=1.0, sense="at_most"),
        Figure(name="  until all have moved", measured=took, unit="s"),
    ]  # fmt: skip


async def _longest(actors: list[Any]) -> tuple[float, int]:
    """Call until canceled; return the longest time, and how many calls were made."""
    longest, calls = 0.0, 0
    stopping = asyncio.Event()

    async def caller(first: int) -> None:
        nonlocal longest, calls
        number = first
        while not stopping.is_set():
            began = time.perf_counter()
            await actors[number % len(actors)].add(1)
            longest = max(longest, time.perf_counter() - began)
            calls += 1
            number += CALLERS
            await asyncio.sleep(PAUSE_SECONDS)

    callers = asyncio.gather(*(caller(n) for n in range(CALLERS)))
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        stopping.set()
        await callers
    return longest, calls


async def _until_all(app: App) -> None:
    async with asyncio.timeout(60):
        while True:
            own = sum(group == "default" for group, _ in app.actors.runtime.slots)
            if own == app.settings.actors_slots:
                return
            await asyncio.sleep(0.01)
