"""Slots of consumers: reserved and capped ones, hours, pauses, and what is claimed ahead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.messaging import Preemption
from relevo.messaging.core.classes import CLASSES
from relevo.messaging.operating import consumers
from relevo.messaging.registry import ConsumersRegistry, defined
from tests.jobs.office import until
from tests.messaging.consumers.depot import Depot, Handler

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


async def test_lower_classes_never_hold_reserved_slots(depot: Depot) -> None:  # M12
    await depot.queue()
    handler = Handler(waits=True)
    await depot.send(*["low"] * 10, priority=1)
    await depot.serve(handler, concurrency=4, reserved={"high": 2})
    await handler.until_seen(2)
    (first,) = await depot.send("high", priority=8)
    await handler.until_seen(3)
    await depot.send("high", "high", priority=8)
    await handler.until_seen(4)
    assert handler.bodies == ["low", "low", "high", "high"]
    held = await depot.rows("state = 1")
    assert [row["priority"] for row in held].count(1) == 2
    assert first in {row["sequence"] for row in held}
    handler.go.set()
    await handler.until_seen(13)


async def test_classes_reserve_as_their_queue_says(depot: Depot) -> None:
    high, *others = CLASSES
    await depot.queue(classes=[replace(high, reserved=1), *others])
    handler = Handler(waits=True)
    await depot.send(*["low"] * 4, priority=1)
    await depot.serve(handler, concurrency=2)
    await handler.until_seen(1)
    await depot.send("high", priority=8)
    await handler.until_seen(2)
    assert handler.bodies == ["low", "high"]


async def test_a_class_uses_no_more_slots_than_it_may(depot: Depot) -> None:
    await depot.queue()
    handler = Handler(waits=True)
    await depot.send(*["high"] * 5, priority=8)
    await depot.send("low", priority=1)
    await depot.serve(handler, concurrency=4, max_per_class={"high": 2})
    await handler.until_seen(3)
    assert sorted(handler.bodies) == ["high", "high", "low"]
    held = await depot.rows("state = 1")
    assert len(held) == 3


async def test_a_tenant_uses_no_more_slots_than_it_may(depot: Depot) -> None:
    await depot.queue()
    handler = Handler(waits=True)
    await depot.send(*["acme"] * 5, fairness_key="acme")
    await depot.send("other", fairness_key="other")
    await depot.serve(handler, concurrency=4, max_per_fairness_key=2)
    await handler.until_seen(3)
    assert sorted(handler.bodies) == ["acme", "acme", "other"]
    handler.go.set()
    await handler.until_seen(6)


async def test_out_of_hours_nothing_is_claimed(depot: Depot) -> None:
    await depot.queue()
    await depot.queue("other")
    await depot.set_time("2031-05-05 12:00:00+00")
    handler, other = Handler(), Handler()
    (number,) = await depot.send("night")
    app = depot.app(handler, hours="22:00-06:00 UTC")
    app.queue("other").on_messages("others")(other)
    await depot.stack.enter_async_context(app.host())
    for n in range(3):  # each of these is a round of the same host
        await depot.send(n, to="other")
        await other.until_seen(n + 1)
    assert not handler.seen
    assert await depot.row(number) is not None
    await depot.set_time("2031-05-05 23:00:00+00")
    await handler.until_seen(1)


async def test_paused_consumers_claim_nothing_and_keep_what_they_have(depot: Depot) -> None:  # M34
    await depot.queue()
    await depot.queue("other")
    handler, other = Handler(waits=True), Handler()
    (held,) = await depot.send("held")
    app = depot.app(handler, concurrency=2)
    app.queue("other").on_messages("others")(other)
    await depot.stack.enter_async_context(app.host())
    await handler.until_seen(1)
    await consumers.pause(depot.database, "drawers", reason="repairs")
    (waiting,) = await depot.send("waiting")
    for n in range(3):
        await depot.send(n, to="other")
        await other.until_seen(n + 1)
    row, lock = await depot.row(waiting), await depot.row(held)
    assert row is not None
    assert (row["state"], row["delivered"]) == (0, False)
    assert lock is not None
    assert lock["state"] == 1
    handler.go.set()
    await depot.until_gone(held)
    await consumers.resume(depot.database, app.wakeups, "drawers")
    await depot.until_gone(waiting)


async def test_a_pause_ends_by_itself(depot: Depot) -> None:
    await depot.queue()
    await depot.set_time("2031-05-05 12:00:00+00")
    handler = Handler()
    app = depot.app(handler)
    async with app.host():
        now = await depot.database.fetchval("select relevo.now() + interval '1 hour'")
        await consumers.pause(depot.database, "drawers", reason="an hour", until=now)
        (number,) = await depot.send("x")
        await depot.set_time("2031-05-05 13:30:00+00")
        await depot.until_gone(number)
        with pytest.raises(NotFound, match="no consumers 'nobody'"):
            await consumers.pause(depot.database, "nobody")
    paused = "select count(*) from relevo.event where type = 'relevo.consumers.paused'"
    assert await depot.database.fetchval(paused) == 1


async def test_nothing_is_claimed_ahead_where_that_is_turned_off(depot: Depot) -> None:
    await depot.queue()
    handler = Handler(waits=True)
    most = 0

    async def work(msg: Any) -> None:
        nonlocal most
        rows = await depot.rows("state = 1")
        most = max(most, len(rows))
        handler.seen.append(msg)

    await depot.send(*range(40))
    await depot.serve(work, prefetch=0, concurrency=2)
    await handler.until_seen(40)
    assert most <= 2


async def test_what_waits_for_a_slot_too_long_goes_back(depot: Depot) -> None:
    await depot.queue()
    stuck = asyncio.Event()
    handler = Handler()

    async def work(msg: Any) -> None:
        handler.seen.append(msg)
        if msg.body == "slow":
            await stuck.wait()

    await depot.send(*range(300))
    await depot.serve(work)
    await handler.until_seen(300)  # quick ones: it claims ahead
    await depot.send("slow", *range(50))

    async def only_one() -> bool:
        held = await depot.rows("state = 1")
        return [row["delivery_count"] for row in held] == [0] and len(await depot.rows()) > 1

    await until(only_one, "the messages behind the slow one are kept")
    assert {row["delivery_count"] for row in await depot.rows()} == {0}
    stuck.set()
    await handler.until_seen(351)


async def nothing(msg: Any) -> None:
    del msg


def of(**options: Any) -> Callable[[], object]:
    options.setdefault("sources", ["render"])
    name = options.pop("name", "drawers")
    sources = options.pop("sources")
    return lambda: defined(name, sources, nothing, **options)


@pytest.mark.parametrize(
    ("define", "pointer"),
    [
        (of(hours="22-6"), "hours"),
        (of(hours="22:00-06:00 Moon/Base"), "hours"),
        (of(reserved={"high": 2}), "reserved"),
        (of(reserved={"high": -1}, concurrency=4), "reserved"),
        (of(concurrency=0), "concurrency"),
        (of(batch=0), "batch"),
        (of(batch=2, reserved={"high": 1}), "batch"),
        (of(batch=2, preempt=Preemption()), "batch"),
        (of(prefetch=5), "prefetch"),
        (of(time_limit=0), "time_limit"),
        (of(across="best"), "across"),
        (of(max_per_class={"high": 0}), "max_per_class/high"),
        (of(max_per_fairness_key=0), "max_per_fairness_key"),
        (of(preempt=Preemption(mode="kill")), "preempt/mode"),
        (of(sources=[]), "sources"),
        (of(sources=["render", "RENDER"]), "sources"),
        (of(sources=["render/$DeadLetterQueue"]), "sources"),
        (of(name="a b"), "name"),
    ],
)
def test_consumers_that_cannot_be_are_refused(define: Callable[[], object], pointer: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        define()
    assert refused.value.pointer == pointer


def test_a_name_is_given_once() -> None:
    registry = ConsumersRegistry()
    registry.add(defined("drawers", ["render"], nothing))
    with pytest.raises(Conflict, match="consumers 'drawers' already"):
        registry.add(defined("drawers", ["other"], nothing))


async def test_a_host_refuses_sources_and_classes_that_are_not_there(depot: Depot) -> None:
    await depot.queue()
    with pytest.raises(InvalidValue, match="'urgent', which no source has"):
        async with depot.app(nothing, reserved={"urgent": 1}).host():
            pass
    await depot.queue("ordered", requires_session=True)
    with pytest.raises(Conflict, match="requires sessions"):
        async with depot.app(nothing, sources=["ordered"], batch=2).host():
            pass
