"""Overload and a day of traffic: targets hold, low work moves, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.messaging import Aging, Message, Strict
from tests.jobs.office import told, until
from tests.messaging.faults.accounts import RECOUNT

if TYPE_CHECKING:
    from relevo.messaging import Received
    from relevo.messaging.handles import Queue
    from relevo.testing import Clock

pytestmark = pytest.mark.anyio
SLOTS = 8
SERVICE_SECONDS = 0.25
LOAD_SECONDS = 150.0
QUEUES = 6
"""Of these together there are high messages enough for a percentile that one stall of a busy
machine does not decide."""
FLOOR = 0.05
TABLES = (
    "message", "message_arrival", "message_session", "message_seen", "message_settled",
    "message_fairness", "message_delta", "message_wait_delta", "message_replica",
)  # fmt: skip


class Slots:
    """A handler that takes its time, and notes who waited how long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.waits: dict[str, list[float]] = {"high": [], "low": []}
        self.order: list[str] = []

    async def __call__(self, msg: Received) -> None:
        now = asyncio.get_running_loop().time()
        self.order.append(msg.priority_class)
        self.waits[msg.priority_class].append(now - msg.body)
        await asyncio.sleep(self._seconds)


async def flood(queue: Queue, per_second: float, high: float, seconds: float) -> Counter[str]:
    """Send at a rate, so many of them high; the body is the instant."""
    loop, dice = asyncio.get_running_loop(), random.Random(queue.name)
    begun, sent = loop.time(), Counter[str]()
    while (now := loop.time()) - begun < seconds:
        due = int((now - begun) * per_second) - sent.total()
        names = ["high" if dice.random() < high else "low" for _ in range(due)]
        await queue.send_many([Message(now, priority_class=name) for name in names])
        sent.update(names)
        await asyncio.sleep(0.05)
    return sent


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_high_keeps_its_target_when_there_is_too_much_work(app: App, relevo_url: str) -> None:
    serving = App(settings=told(relevo_url, host_name="a"))
    slots = Slots(SERVICE_SECONDS)
    names = [f"render-{n}" for n in range(QUEUES)]
    for name in names:
        serving.queue(name).on_messages(name, concurrency=SLOTS)(slots)
    capacity = SLOTS / SERVICE_SECONDS
    async with serving.host():
        floods = (flood(app.queue(one), 1.3 * capacity, 0.01, LOAD_SECONDS) for one in names)
        sent = sum(await asyncio.gather(*floods), Counter[str]())
        waits = sorted(slots.waits["high"])
        served = len(slots.order)
    assert sent["high"] >= 300
    assert len(waits) >= sent["high"] - QUEUES  # none is left behind
    assert served > 0.7 * QUEUES * capacity * LOAD_SECONDS  # the slots were in use
    assert waits[int(len(waits) * 0.99)] <= 2 * SERVICE_SECONDS
    assert len(slots.waits["low"]) >= FLOOR * served


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_low_gets_its_floor_share_and_no_more_while_high_is_too_much(
    app: App, relevo_url: str
) -> None:  # M9
    serving = App(settings=told(relevo_url, host_name="a"))
    slots = Slots(SERVICE_SECONDS)
    queue = app.queue("render", ordering=Aging(floor_share=FLOOR))
    await queue.ensure()
    serving.queue("render").on_messages("drawers", concurrency=SLOTS)(slots)
    capacity, high, low = SLOTS / SERVICE_SECONDS, 1.2, 0.2
    async with serving.host():
        await flood(queue, (high + low) * capacity, high / (high + low), LOAD_SECONDS / 2)
    backlogged = slots.order[len(slots.order) // 5 :]  # until then high may have run out
    share = Counter(backlogged)["low"] / len(backlogged)
    assert len(backlogged) > 0.5 * capacity * LOAD_SECONDS / 2
    assert abs(share - FLOOR) <= 0.01


class Day:
    """A little of everything, every ten minutes."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.fair = app.queue("fair", ordering=Strict(), fair=True)
        self.once = app.queue("once", duplicate_window=600)
        self.brief = app.queue("brief", dead_letter_on_expiration=True, dlq_ttl=3600)
        self.later = app.queue("later")
        self.inbox = app.queue("inbox", forward_to="fair")
        self.chats = app.queue("chats", requires_session=True, lock_duration=30)
        self.by_hand = app.queue("by-hand", lock_duration=30, max_delivery_count=2, dlq_ttl=3600)
        self.news = app.topic("news")
        self.seen = self.news.subscription("seen", rules={"even": "n % 2 = 0"})

    async def make(self) -> None:
        for one in (self.fair, self.once, self.later, self.seen):
            await one.ensure()

    async def pass_on(self, step: int, clock: Clock) -> None:
        tenants = [f"tenant-{(step * 7 + n) % 50}" for n in range(5)]
        await self.fair.send_many([Message(step, fairness_key=one) for one in tenants])
        await self.once.send(step, message_id=str(step))
        await self.once.send(step, message_id=str(step))
        await self.brief.send(step, ttl=60)
        await self.later.schedule(step, await clock.now() + timedelta(minutes=25))
        await self.inbox.send(step, fairness_key="forwarded")
        await self.news.send_many([Message(step, properties={"n": n}) for n in range(4)])
        async with self.app.database.transaction() as tx:
            await self.fair.send(step, fairness_key="arrived", tx=tx)
        await self.chats.send_many([Message(step, session_id=f"chat-{step}")] * 2)
        async with await self.chats.accept_session(f"chat-{step}") as session:
            for message in await session.receive(2, wait=1):
                await message.complete()
        await self.chats.send(step, session_id=f"left-{step}")
        abandoned = await self.chats.accept_session(f"left-{step}")
        await abandoned.receive(wait=1)  # and never settled nor closed
        await self.by_hand.send_many([Message(step)] * 3)
        held = await self.by_hand.receive(2, wait=1)
        await held[0].complete()  # the other lock expires

    async def settle_all(self) -> None:
        """Deal with what nobody serves."""
        while (session := await self.chats.accept_next()) is not None:
            async with session:
                for message in await session.receive(10):
                    await message.complete()
        for source in (self.by_hand, self.by_hand.dead_letters, self.brief.dead_letters):
            while await source.receive(100, mode="receive_and_delete"):
                pass


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_day_of_traffic_leaves_nothing_behind(
    app: App, relevo_url: str, clock: Clock
) -> None:  # M1, M29
    day = Day(app)
    await day.make()
    serving = App(settings=told(relevo_url, host_name="a"))
    done: Counter[str] = Counter()

    async def note(msg: Any) -> None:
        done[msg.source] += 1

    served = [serving.queue(name) for name in ("fair", "once", "later")]
    seen = serving.topic("news").subscription("seen", rules={"even": "n % 2 = 0"})
    serving.consumers("all", sources=[*served, seen], concurrency=4)(note)
    steps = 24 * 6
    async with serving.host():
        for step in range(steps):
            await day.pass_on(step, clock)
            await clock.advance(timedelta(minutes=10))

        async def all_done() -> bool:
            return (done["fair"], done["once"], done["later"], done["news/subscriptions/seen"]) == (
                7 * steps, steps, steps, 2 * steps
            )  # fmt: skip

        async def shown() -> str:
            return f"all {steps} steps: {done}"

        await clock.advance(timedelta(hours=1))
        await until(all_done, shown, timeout=60)
        await day.settle_all()
        await clock.advance(timedelta(hours=2))

        async def left() -> dict[str, int]:
            counts = {
                one: await app.database.fetchval(f"select count(*) from relevo.{one}")
                for one in TABLES
            }
            return {name: count for name, count in counts.items() if count}

        async def gone() -> bool:
            return set(await left()) <= {"message_replica"}

        async def there() -> str:
            return f"left: {await left()}"

        await until(gone, there, timeout=60)
        assert await app.database.fetch(RECOUNT) == []
    assert await left() == {}
