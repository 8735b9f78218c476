"""Asks of volatile and durable actors on one host, and activations."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.actor_parts import peers
from bench.actor_parts.common import (
    ACTORS,
    CALLERS,
    Counter,
    Rate,
    figures,
    measured,
    scaled,
    turns,
)

if TYPE_CHECKING:
    from bench import Figure
    from relevo import App


class BareMailbox:
    """An actor that is a bounded queue and a task."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue(1_000)
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    async def add(self, number: int) -> int:
        """Ask it."""
        answer: asyncio.Future[int] = self._loop.create_future()
        await self._queue.put((number, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            number, answer = await self._queue.get()
            self._number += number
            answer.set_result(self._number)

    def close(self) -> None:
        """End it."""
        self._task.cancel()


async def volatile(app: App) -> list[Figure]:
    """Measure volatile actors beside bare mailboxes and other actors for Python."""
    found: list[Figure] = []
    boxes = [BareMailbox() for _ in range(ACTORS)]
    actors: list[Any] = [app.actor(Counter, n, type="volatile") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(0) for actor in actors))
    programs = await peers.programs()
    for what, callers, calls in (("sequential", 1, 3_000), ("pipelined", CALLERS, 20_000)):
        for count in (1, ACTORS):
            many = scaled(calls)
            sides: Any = {
                "actor": lambda: measured(lambda n: actors[n % count].add(1), many, callers),  # noqa: B023
                "bare": lambda: measured(lambda n: boxes[n % count].add(1), many, callers),  # noqa: B023
            } | {name: partial(_peer, one, many, callers, count) for name, one in programs.items()}
            rates = await turns(sides)
            name = f"volatile, {what}, {count:,} actors"
            bare = rates["bare"].per_second
            found += figures(name, rates["actor"], beside=bare, bound=0.3)
            for peer in programs:
                bound = 3.0 if peer == "xoscar" else None
                beside = rates[peer].per_second
                found += figures(f"  beside {peer}", rates["actor"], beside=beside, bound=bound)[:1]
                found += figures("", rates[peer])[1:]
    for box in boxes:
        box.close()
    return found


async def _peer(program: list[str], calls: int, callers: int, actors: int) -> Rate:
    return Rate(*await peers.asked(program, calls, callers, actors))


async def durable(app: App) -> list[Figure]:
    """Measure durable actors beside what is promised, and beside a bare insert."""
    found: list[Figure] = []
    actors: list[Any] = [app.actor(Counter, n, type="durable") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(0) for actor in actors))
    for count in (1, ACTORS):
        rates = await turns({
            "actor": lambda: measured(lambda n: actors[n % count].add(1), scaled(20_000), CALLERS),  # noqa: B023
        })  # fmt: skip
        name = f"durable, pipelined, {count:,} actors"
        found += figures(name, rates["actor"], beside=10_000.0, bound=1.0)
    await app.database.write("create table if not exists public.bench_bare (number bigint)")
    insert = "insert into public.bench_bare values ($1)"
    rates = await turns({
        "actor": lambda: measured(lambda _: actors[0].add(1), scaled(300), 1),
        "bare": lambda: measured(lambda n: app.database.write(insert, n), scaled(300), 1),
    })  # fmt: skip
    bare = rates["bare"].per_second
    return found + figures(
        "durable, idle, beside an insert", rates["actor"], beside=bare, bound=0.5
    )


async def activations(app: App) -> list[Figure]:
    """Measure activations from the store."""
    stored = [app.actor(Counter, n, type="durable") for n in range(ACTORS)]
    await asyncio.gather(*(actor.add(1) for actor in stored))

    async def activate() -> Rate:
        for slot in app.actors.runtime.slots.values():
            for activation in list(slot.activations.values()):
                activation.deactivate("requested")
        while app.actors.runtime.live:
            await asyncio.sleep(0.01)
        return await measured(lambda n: stored[n].add(0), ACTORS, CALLERS)

    rates = await turns({"activate": activate})
    return figures("activated from the store", rates["activate"], beside=3_000.0, bound=1.0)
