"""How often one message makes room: three times, whatever its handler does; and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from relevo.messaging import Preemption
from tests.jobs.office import until
from tests.messaging.consumers import process_handlers
from tests.messaging.consumers.depot import CLASSES, Depot, Handler

if TYPE_CHECKING:
    from relevo.messaging import Received

pytestmark = pytest.mark.anyio

AT_ONCE = Preemption(min_run=0.0, grace=30.0)
SAME = ("rank", "enqueued_at", "delivery_count", "class", "priority")
"""What suspending a message leaves as it was."""


async def polite(msg: Received) -> None:
    """Save until asked to make room."""
    frame = int(msg.checkpoint or b"0")
    while msg.priority < 7:
        frame += 1
        await msg.save(str(frame).encode())
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ["polite", pytest.param("killed", marks=pytest.mark.soak)])
async def test_a_message_makes_room_three_times(depot: Depot, kind: str) -> None:  # M14, M15
    await depot.queue(classes=CLASSES)
    [low] = await depot.send("low", priority=1)
    if kind == "polite":
        await depot.serve(polite, preempt=AT_ONCE, drain_seconds=0.1)
    else:
        rules = replace(AT_ONCE, grace=0.05, mode="kill")
        await depot.serve(process_handlers.stay, process=True, preempt=rules, drain_seconds=0.1)
    before = await depot.until_row(low, "state = 1 and checkpoint is not null")
    for count in range(1, 4):
        [high] = await depot.send(f"high {count}", priority=8)
        await depot.until_gone(high)
        row = await depot.until_row(low, f"preempt_count = {count} and state = 1")
        assert [row[name] for name in SAME] == [before[name] for name in SAME]
        assert row["checkpoint"] is not None
        if kind == "polite":
            await depot.until_row(low, f"checkpoint <> '{row['checkpoint'].decode()}'")
    [waiting] = await depot.send("high 4", priority=8)
    assert await depot.database.fetch("select relevo.ask_preemption(id, 3, 0, 3) "
                                      "from relevo.message_consumers") == []  # fmt: skip
    kept, other = await depot.rows()
    assert (kept["state"], kept["preempt_asked"], kept["preempt_count"]) == (1, False, 3)
    assert (other["sequence"], other["state"]) == (waiting, 0)


async def test_a_stubborn_handler_is_asked_once_and_never_suspended(depot: Depot) -> None:
    # M14, M15
    await depot.queue(classes=CLASSES)
    handler = Handler(waits=True)
    [low] = await depot.send("low", priority=1)
    app = await depot.serve(handler, preempt=replace(AT_ONCE, grace=0.01))
    before = await depot.until_row(low, "state = 1")
    ignored = app.database.metrics.messages_preempt_ignored.labels(consumers="drawers")
    highs = await depot.send("high 1", "high 2", "high 3", "high 4", priority=8)
    await until(lambda: ignored._value.get() == 1, "it is not counted")
    row = await depot.until_row(low, "preempt_asked")
    assert (row["preempt_count"], row["token"]) == (0, before["token"])
    handler.go.set()
    await depot.until_gone(low, *highs)
    assert handler.bodies == ["low", "high 1", "high 2", "high 3", "high 4"]
    assert {msg.preempt_count for msg in handler.seen} == {0}
    assert ignored._value.get() == 1


async def test_messages_that_end_while_they_are_asked_are_handled_once(depot: Depot) -> None:
    # M2, M14, M15: saves, completions and requests of many messages overtake each other
    await depot.queue(classes=CLASSES)
    done: list[Any] = []
    seen: dict[Any, list[tuple[int, int, bytes | None]]] = {}

    async def draw(msg: Received) -> None:
        given = (msg.preempt_count, msg.delivery_count, msg.checkpoint)
        seen.setdefault(msg.body, []).append(given)
        for frame in range(int(msg.checkpoint or b"0"), 5 if msg.priority < 7 else 0):
            await msg.save(str(frame + 1).encode())
        done.append(msg.body)

    lows = [f"low {n}" for n in range(20)]
    numbers = await depot.send(*lows, priority=1)
    await depot.serve(draw, preempt=AT_ONCE, concurrency=2)
    highs = []
    for n in range(30):
        highs.append(f"high {n}")
        numbers += await depot.send(highs[-1], priority=8)
    await depot.until_gone(*numbers)
    assert sorted(done) == sorted(lows + highs)
    for body, deliveries in seen.items():
        assert [preempted for preempted, _, _ in deliveries] == list(range(len(deliveries))), body
        assert len(deliveries) <= 4
        assert {failed for _, failed, _ in deliveries} == {0}
        frames = [int(checkpoint or b"0") for _, _, checkpoint in deliveries]
        assert frames == sorted(frames)  # none goes back behind what it has saved
