"""The order in which three hosts serve a queue together."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.messaging import Aging, Message, Strict, Weighted
from relevo.messaging.core.classes import CLASSES
from tests.jobs.office import told, until

if TYPE_CHECKING:
    from relevo.messaging import Received
    from relevo.messaging.model import Ordering
    from tests.messaging.consumers.depot import Depot

pytestmark = pytest.mark.anyio

HOSTS = ("a", "b", "c")
FLOOR = 0.2
LEVEL = 0.02
"""Seconds that a level of priority is worth, in the queue that ages."""
QUEUES: dict[str, tuple[Ordering, bool]] = {
    "strict": (Strict(), False),
    "aging": (Aging(seconds_per_level=LEVEL, floor_share=FLOOR), False),
    "weighted": (Weighted(), False),
    "fair": (Strict(), True),
}
WEIGHTS = {one.name: one.weight for one in CLASSES}


class Served:
    """The messages of a queue, in the order of the claims: one slot at a time becomes free."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[Message] = []
        self.order: list[Received] = []
        self.known: list[int] = []
        """How many messages had been sent at each claim."""
        self._running: list[asyncio.Event] = []

    async def __call__(self, msg: Received) -> None:
        go = asyncio.Event()
        self._running.append(go)
        self.order.append(msg)
        self.known.append(len(self.sent))
        await go.wait()

    async def send(self, depot: Depot, random: Random, count: int) -> None:
        """Send messages of all priorities and tenants, some at once."""
        for _ in range(count // 5):
            one = random.choice(("acme", "zeta", "umbra"))
            batch = [
                Message(body=len(self.sent) + n, priority=random.randrange(10), fairness_key=one)
                for n in range(5)
            ]
            await depot.client.queue(self.name).send_many(batch)
            self.sent += batch

    async def until_served(self, count: int) -> None:
        await until(lambda: len(self.order) >= count, f"{count} messages of {self.name}")

    async def go_on(self, random: Random, until_left: int) -> None:
        """Let one handler after the other end, on a host by chance."""
        while len(self.sent) - len(self.order) > until_left:
            count = len(self.order)
            self._running.pop(random.randrange(len(self._running))).set()
            await self.until_served(count + 1)

    def end(self) -> None:
        for go in self._running:
            go.set()

    def waiting(self, claim: int) -> list[Received]:
        """What the claim could have taken instead: what came later, of what was sent before it."""
        return [one for one in self.order[claim + 1 :] if one.body < self.known[claim]]


async def test_three_hosts_serve_queues_in_their_order(depot: Depot) -> None:
    random = Random(7)
    queues = {name: Served(name) for name in QUEUES}
    for name, (ordering, fair) in QUEUES.items():
        await depot.queue(name, ordering=ordering, fair=fair)
        await queues[name].send(depot, random, 60)
    for number, host in enumerate(HOSTS, 1):
        app = App(settings=told(depot.url, host_name=host))
        for name, served in queues.items():
            app.queue(name).on_messages(name, concurrency=1, prefetch=0)(served)
        await depot.stack.enter_async_context(app.host())
        for served in queues.values():
            await served.until_served(number)
    for served in queues.values():  # more comes while they are at it
        await served.go_on(random, 40)
        await served.send(depot, random, 30)
    await asyncio.gather(*(served.go_on(random, 0) for served in queues.values()))
    for served in queues.values():
        served.end()
    check_strict(queues["strict"])
    check_aging(queues["aging"])
    check_weighted(queues["weighted"])
    check_fair(queues["fair"])


def check_strict(served: Served) -> None:
    for n, msg in enumerate(served.order):
        assert all(one.priority <= msg.priority for one in served.waiting(n))  # M7
        equal = [one for one in served.waiting(n) if one.priority == msg.priority]
        assert all(one.sequence_number > msg.sequence_number for one in equal)  # M13


def check_aging(served: Served) -> None:
    def key(msg: Received) -> tuple[float, int]:
        return msg.enqueued_at.timestamp() - msg.priority * LEVEL, msg.sequence_number

    express = [msg.priority_class == "high" for msg in served.order]
    for n, msg in enumerate(served.order):
        tier = [one for one in served.waiting(n) if (one.priority_class == "high") == express[n]]
        assert all(key(one)[0] >= key(msg)[0] - 1e-5 for one in tier)  # M8
        window = range(n, n + round(1 / FLOOR))
        if window.stop <= len(express) and all(express[i] for i in window):  # M9
            assert any(
                all(one.priority_class == "high" for one in served.waiting(i)) for i in window
            )


def check_weighted(served: Served) -> None:
    for a in WEIGHTS:
        for b in WEIGHTS:
            bound, counts, spread = 1 / WEIGHTS[a] + 1 / WEIGHTS[b], Counter[str](), [0.0]
            for n, msg in enumerate(served.order):
                waits = {one.priority_class for one in served.waiting(n)} | {msg.priority_class}
                if not {a, b} <= waits:
                    counts, spread = Counter(), [0.0]
                    continue
                counts[msg.priority_class] += 1
                spread.append(counts[a] / WEIGHTS[a] - counts[b] / WEIGHTS[b])
                assert max(spread) - min(spread) <= bound + 1e-9  # M10


def check_fair(served: Served) -> None:
    for n, msg in enumerate(served.order):
        own = [
            i for i, one in enumerate(served.order[:n])
            if (one.fairness_key, one.priority_class) == (msg.fairness_key, msg.priority_class)
        ]  # fmt: skip
        if not own:
            continue
        between = {one.fairness_key for one in served.order[own[-1] + 1 : n]}
        for one in served.waiting(n):  # it waited all the while
            if one.priority_class == msg.priority_class and one.body < served.known[own[-1]]:
                assert one.fairness_key in between | {msg.fairness_key}  # M11


async def test_reserved_slots_hold_on_each_of_three_hosts(depot: Depot) -> None:
    await depot.queue()
    for priority in (1, 8, 1, 4):
        await depot.send(*range(15), priority=priority)
    low: dict[str, Counter[str]] = {host: Counter() for host in HOSTS}
    done: list[Any] = []

    async def serve(host: str) -> None:
        async def handler(msg: Received) -> None:
            used = low[host]
            used["now"] += msg.priority_class != "high"
            used["most"] = max(used["most"], used["now"])
            await msg.save(b"")  # lets the others go on
            used["now"] -= msg.priority_class != "high"
            done.append(msg.body)

        await depot.serve(handler, host=host, concurrency=3, reserved={"high": 1})

    await asyncio.gather(*map(serve, HOSTS))
    await until(lambda: len(done) == 60, "all messages")
    assert all(used["most"] <= 2 for used in low.values())  # M12
