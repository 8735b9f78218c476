"""What the leading host does by itself: targets, idle entities, pauses that are over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from relevo.errors import NotFound
from relevo.messaging import Message, Strict
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.host import MessagingPart
from relevo.messaging.operating import consumers

if TYPE_CHECKING:
    from relevo import App
    from relevo.messaging import PriorityClass
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio


def classes(on_breach: str) -> tuple[PriorityClass, ...]:
    from msgspec.structs import replace

    high, normal, low = CLASSES
    return high, normal, replace(low, slo=60.0, on_breach=on_breach)


async def missed(app: App, clock: Clock, on_breach: str) -> None:
    """Let one of two low messages miss its target."""
    queue = app.queue("q", classes=classes(on_breach))
    await queue.send("old", priority=0)
    await clock.advance(timedelta(seconds=61))
    await queue.send("new", priority=0)
    await app.parts.of(MessagingPart).timers.breach_targets()
    await app.parts.of(MessagingPart).timers.breach_targets()


async def test_a_late_message_is_moved_to_a_higher_class(app: App, clock: Clock) -> None:  # 7.4
    await missed(app, clock, "escalate")
    found = await app.queue("q").receive(10)
    assert [(one.body, one.priority_class) for one in found] == [("old", "normal"), ("new", "low")]


async def test_a_late_message_is_dead_lettered(app: App, clock: Clock) -> None:  # 7.4
    await missed(app, clock, "dead_letter")
    (dead,) = await app.queue("q").dead_letters.receive(10)
    assert (dead.body, dead.dead_letter_reason) == ("old", "SloExceeded")
    assert [one.body for one in await app.queue("q").receive(10)] == ["new"]


async def test_a_late_message_is_forwarded(app: App, clock: Clock, post: Post) -> None:  # 7.4
    await app.queue("late").ensure()
    await missed(app, clock, "forward:late")
    await post.accept()
    assert [one.body for one in await app.queue("late").receive(10)] == ["old"]


async def test_an_idle_queue_is_deleted(app: App, clock: Clock, post: Post) -> None:  # 3
    queue = app.queue("q", auto_delete_on_idle=300)
    await queue.send(b"x")
    await clock.advance(timedelta(seconds=301))
    await post.tend()
    (message,) = await queue.receive()
    await message.complete()
    await post.tend()
    assert (await queue.describe()).messages.completed == 1
    await clock.advance(timedelta(seconds=301))
    await post.tend()
    with pytest.raises(NotFound):
        await app.messaging.tools.entities.get("q")


async def test_what_a_dropped_queue_has_left_is_removed(app: App, post: Post) -> None:
    queue = app.queue("q", duplicate_window=60)
    await queue.send_many([])
    await queue.send(b"x")
    await queue.drop()
    await post.tend()
    for table in ("message", "message_seen", "message_class", "message_count", "message_entity"):
        assert await app.database.fetchval(f"select count(*) from relevo.{table}") == 0


async def test_a_pause_ends_by_itself(app: App, clock: Clock) -> None:  # 9
    @app.queue("q").on_messages("readers")
    async def read(msg: object) -> None: ...

    async with app.host(name="one"):
        until = await app.now() + timedelta(seconds=60)
        await consumers.pause(app.database, "readers", reason="stocktaking", until=until)
        paused = await consumers.found(app.database, "readers")
        assert (paused.state, paused.reason) == ("paused", "stocktaking")
        await clock.advance(timedelta(seconds=61))
        await app.parts.of(MessagingPart).timers.resume_consumers()
        assert (await consumers.found(app.database, "readers")).state == "running"


async def test_however_much_is_over_is_forgotten(app: App, clock: Clock, post: Post) -> None:
    queue = app.queue("q", ordering=Strict(), fair=True, duplicate_window=30)
    for start in range(0, 2_500, 500):
        await queue.send_many(
            [Message(b"", fairness_key=f"k{n}") for n in range(start, start + 500)]
        )
    while messages := await queue.receive(500, mode="receive_and_delete"):
        pass
    del messages
    await clock.advance(timedelta(minutes=6))
    await post.tend()
    await post.tend()  # the first has counted what it forgot
    for table in ("message_seen", "message_fairness", "message_delta", "message"):
        assert await app.database.fetchval(f"select count(*) from relevo.{table}") == 0, table


async def test_a_tenant_is_remembered_while_others_wait(
    app: App, clock: Clock, post: Post
) -> None:  # M11
    queue = app.queue("q", ordering=Strict(), fair=True)
    await queue.send_many([Message("a", fairness_key="a")] * 3 + [Message("b", fairness_key="b")])
    first = [one.body for one in await queue.receive(2, mode="receive_and_delete")]
    assert sorted(first) == ["a", "b"]
    await clock.advance(timedelta(minutes=6))
    await post.tend()
    await queue.send_many([Message("a", fairness_key="a"), Message("b", fairness_key="b")] * 2)
    rest = [one.body for one in await queue.receive(10, mode="receive_and_delete")]
    assert sorted(rest[:4]) == ["a", "a", "b", "b"]


async def test_figures_are_shown_by_the_leading_host(app: App) -> None:  # 19, M35
    queue = app.queue("q")
    done = asyncio.Event()

    @queue.on_messages("readers")
    async def read(msg: object) -> None:
        done.set()

    await queue.send("x", priority=9)
    await queue.schedule("y", await app.now() + timedelta(hours=1))
    async with app.host(name="one"), asyncio.timeout(60):
        await done.wait()
        while (await queue.describe()).messages.completed < 1:
            await asyncio.sleep(0.01)
        await app.parts.of(MessagingPart).figures.read()
        text = app.metrics.render().decode()
    for line in (
        'relevo_messages_sent_total{class="high",entity="q"} 1.0',
        'relevo_messages_completed_total{class="high",entity="q"} 1.0',
        'relevo_messages_completed_total{class="normal",entity="q"} 0.0',
        'relevo_messages{class="normal",entity="q",state="scheduled"} 1.0',
        'relevo_message_target_ratio{class="high",entity="q"} 1.0',
        'relevo_consumers_slots{consumers="readers"} 1.0',
        'relevo_consumers_desired{consumers="readers"} 1.0',
        'relevo_message_wait_seconds_count{class="high",consumers="readers"} 1.0',
        'relevo_message_hold_seconds_count{class="high",consumers="readers"} 1.0',
    ):
        assert line in text, line
