"""What messaging tells the outside: events in the log, and metrics of the leading host."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from relevo import limits
from relevo.errors import Overloaded
from relevo.messaging import Aging, Message
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.events import TYPES
from relevo.messaging.host import MessagingPart
from relevo.messaging.operating import consumers
from tests.messaging.sends import events

if TYPE_CHECKING:
    from relevo import App
    from relevo.testing import Clock
    from tests.messaging.conftest import Post

pytestmark = pytest.mark.anyio


async def test_every_event_tells_of_what_it_names(app: App, clock: Clock, post: Post) -> None:  # 23
    high, normal, low = CLASSES
    late = replace(low, slo=60.0, on_breach="escalate")
    queue = app.queue("Work", events="all", classes=(high, normal, late))

    @queue.on_messages("workers")
    async def work(msg: object) -> None: ...

    async with app.host(name="one"):
        await consumers.pause(app.database, "workers", reason="stocktaking")
        done = await queue.send("done", message_id="done")
        dead = await queue.send("dead", priority=0, message_id="dead")
        await clock.advance(timedelta(seconds=61))
        await post.tend()
        one, other = await queue.receive(2)
        await one.complete()
        await other.dead_letter("broken", "beyond repair")
        await consumers.resume(app.database, app.wakeups, "workers")
    await queue.update(max_delivery_count=3)
    await queue.drop()
    found = [
        (type_, subject, data)
        for type_, subject, _, data in await events(app.database)
        if type_ in {known.name for known in TYPES}
    ]
    assert {type_ for type_, _, _ in found} == {known.name for known in TYPES}

    def of(type_: str) -> list[tuple[str, Any]]:
        told = [(subject, data) for name, subject, data in found if name == f"relevo.{type_}"]
        return sorted(told, key=str)  # those of one statement have no order

    def message(number: int | None, id_: str, **more: Any) -> tuple[str, Any]:
        data = {"entity": "Work", "sequenceNumber": number, "messageId": id_, **more}
        return f"message/{number}", data

    both = [message(done.sequence_number, "done"), message(dead.sequence_number, "dead")]
    assert of("message.sent") == of("message.delivered") == both
    assert of("message.completed") == both[:1]
    reason = {
        "subQueue": 1, "reason": "broken", "description": "beyond repair", "source": "Work",
    }  # fmt: skip
    assert of("message.dead_lettered") == [message(dead.sequence_number, "dead", **reason)]
    target = {"priorityClass": "low", "targetSeconds": 60.0}
    assert of("slo.breached") == [message(dead.sequence_number, "dead", **target)]
    assert of("consumers.paused")[0][1]["reason"] == "stocktaking"
    assert [data["consumers"] for _, data in of("consumers.resumed")] == ["workers"]
    for name in ("created", "changed", "deleted"):
        assert [data for _, data in of(f"queue.{name}")] == [{"entity": "Work", "kind": "queue"}]


async def test_an_entity_says_which_events_it_wants(app: App) -> None:  # 3
    for wanted in ("none", "dead"):
        queue = app.queue(wanted, events=wanted)
        await queue.send("x", message_id=wanted)
        (message,) = await queue.receive()
        await message.dead_letter("broken")
    told = [data["messageId"] for type_, _, _, data in await events(app.database)
            if type_.startswith("relevo.message.")]  # fmt: skip
    assert told == ["dead"]


async def test_each_metric_counts_what_it_names(app: App, clock: Clock, post: Post) -> None:  # 19
    queue = app.queue("q", ordering=Aging(floor_share=0.5), lock_duration=30, max_delivery_count=9)
    topic = app.topic("t")
    choosy = topic.subscription("s", rules={"odd": "n / 0 = 1"}, dead_letter_on_filter_error=False)
    await choosy.ensure()
    await topic.send("nobody wants it", properties={"n": 1})
    await queue.send_many([Message(n, priority=8) for n in range(3)])
    await queue.send_many([Message(n, priority=1) for n in range(3)])
    await queue.send("brief", priority=1, ttl=5)
    messages = await queue.receive(4)  # the second and the fourth by the floor share
    assert [one.priority_class for one in messages] == ["high", "low", "high", "low"]
    await messages[0].abandon(delay=600)
    await messages[1].dead_letter("broken")
    await messages[2].suspend(b"half")
    await clock.advance(timedelta(seconds=31))  # the last lock is lost, the brief message expires
    await post.tend()
    async with app.host(name="one"):
        await app.parts.of(MessagingPart).figures.read()
        text = app.metrics.render().decode()
    for name, priority_class, value in (
        ("relevo_messages_sent_total", "high", 3), ("relevo_messages_sent_total", "low", 4),
        ("relevo_messages_delivered_total", "high", 2),
        ("relevo_messages_delivered_total", "low", 2),
        ("relevo_messages_abandoned_total", "high", 1),
        ("relevo_messages_dead_lettered_total", "low", 1),
        ("relevo_messages_preempted_total", "high", 1),
        ("relevo_messages_lock_lost_total", "low", 1),
        ("relevo_messages_expired_total", "low", 1),
        ("relevo_message_floor_claims_total", "low", 2),
        ("relevo_message_oldest_age_seconds", "normal", 0),
    ):  # fmt: skip
        assert f'{name}{{class="{priority_class}",entity="q"}} {value}.0' in text, (name, text)
    ages = [line for line in text.splitlines() if line.startswith("relevo_message_oldest_age")]
    (age,) = [one for one in ages if 'class="high",entity="q"' in one]
    assert 31 <= float(age.rpartition(" ")[2]) < 3_600
    for line in (
        'relevo_messages_unrouted_total{class="",entity="t"} 1.0',
        'relevo_messages_filter_errors_total{class="",entity="t/subscriptions/s"} 1.0',
    ):
        assert line in text, text


async def test_so_many_receivers_wait_and_no_more(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MESSAGE_RECEIVERS_MAX", 3)
    queue = app.queue("q")
    await queue.ensure()
    waiting = [asyncio.ensure_future(queue.receive(wait=60)) for _ in range(3)]
    counts = app.messaging.tools.receiving.waiting
    while counts.total() < 3:
        await asyncio.sleep(0.01)
    with pytest.raises(Overloaded, match="3 receivers wait at 'q' already"):
        await queue.receive(wait=60)
    await queue.send_many([Message(n) for n in range(3)])
    found = await asyncio.gather(*waiting)
    assert sorted(one.body for many in found for one in many) == [0, 1, 2]
    assert counts.total() == 0
