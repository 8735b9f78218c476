"""Bounded runs: a unit that works off what there is and then is completed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import Conflict, InvalidValue
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.kernel.postgres import Wakeups

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


async def state(kitchen: Kitchen, wakeups: Wakeups) -> str:
    handle = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    return (await handle.state()).state


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_run_until_now_delivers_what_there_is_and_is_completed(
    kitchen: Kitchen, wakeups: Wakeups, lanes: int
) -> None:  # 12.4
    await kitchen.write(*range(30))
    completed: list[str] = []
    processor = await kitchen.serve(start="beginning", until="now", lanes=lanes, max_items=4)
    processor.on_completed(lambda token, positions: completed.append(token))
    await processor.completed()
    assert sorted(kitchen.delivered, key=int) == [str(n) for n in range(30)]
    assert await state(kitchen, wakeups) == "completed"
    await kitchen.write(*range(100, 130))
    await processors.stop(processor)
    assert len(kitchen.delivered) == 30
    assert len(completed) <= 4


async def test_the_next_run_goes_on_where_the_last_one_ended(kitchen: Kitchen) -> None:  # 18
    for first in (0, 100, 200):
        await kitchen.write(*range(first, first + 20))
        processor = await kitchen.serve(f"run{first}", start="beginning", until="now")
        await processor.completed()
        await kitchen.hosts[f"run{first}"].aclose()
        assert len(kitchen.delivered) == first // 5 + 20
    assert len(set(kitchen.delivered)) == 60


async def test_an_empty_run_is_completed_at_once(kitchen: Kitchen, wakeups: Wakeups) -> None:
    processor = await kitchen.serve(until="now")
    await processor.completed()
    assert await state(kitchen, wakeups) == "completed"


async def test_a_run_ends_at_an_instant_or_at_positions(kitchen: Kitchen) -> None:  # 12.4
    await kitchen.write(1, 2, 3)
    at = await kitchen.database.fetchval("select max(ts) from relevo.item")
    rows = await kitchen.database.fetch(
        "select r.id, coalesce(max(i.lsn), 0) as lsn from relevo.feed_range r"
        " left join relevo.item i on i.range_id = r.id group by r.id"
    )
    await kitchen.database.fetchval("select pg_sleep(0.01)")  # so that the next are younger
    await kitchen.write(4, 5, 6)
    for name, until in [("time", at), ("places", {row["id"]: row["lsn"] for row in rows})]:
        kitchen.delivered.clear()
        processor = await kitchen.serve(name, name=name, start="beginning", until=until)
        await processor.completed()
        assert sorted(kitchen.delivered) == ["1", "2", "3"]


async def test_hosts_share_a_run_and_its_end(kitchen: Kitchen) -> None:  # P1
    await kitchen.write(*range(40))
    gate = asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        await gate.wait()
        await kitchen.cook(changes)

    first = await kitchen.serve("a", handler=slow, start="beginning", until="now")
    await kitchen.write(*range(100, 140))
    second = await kitchen.serve("b", handler=slow, until="now")
    assert second._now.bound == first._now.bound
    gate.set()
    await asyncio.gather(first.completed(), second.completed())
    assert sorted(kitchen.delivered, key=int) == [str(n) for n in range(40)]


async def test_a_failing_lease_is_not_completed(kitchen: Kitchen, wakeups: Wakeups) -> None:  # P1
    await kitchen.orders.upsert({"id": "1", "city": "x"})
    broken = True

    async def fragile(changes: list[Change[Any]]) -> None:
        if broken:
            raise ValueError("no")
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=fragile, start="beginning", until="now")
    waiting = asyncio.create_task(processor.completed())
    await kitchen.until(lambda: not processor.health().ok, "it fails")
    assert await state(kitchen, wakeups) == "running"
    assert not waiting.done()
    broken = False
    await waiting
    assert kitchen.delivered == ["1"]


async def test_a_run_ends_over_a_split(kitchen: Kitchen) -> None:  # F9
    await kitchen.write(*range(20))
    gate = asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        await gate.wait()
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=slow, start="beginning", until="now", max_items=2)
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    gate.set()
    await processor.completed()
    await kitchen.hosts["a"].aclose()
    processor = await kitchen.serve("b", until="now")
    await processor.completed()
    assert sorted(kitchen.delivered, key=int) == [str(n) for n in range(20)]


async def test_a_host_without_an_end_runs_on(kitchen: Kitchen, wakeups: Wakeups) -> None:
    processor = await kitchen.serve("a", until="now")
    await processor.completed()
    await kitchen.hosts["a"].aclose()
    endless = await kitchen.serve("b")
    assert await state(kitchen, wakeups) == "running"
    await kitchen.write(1)
    await kitchen.until_delivered(1)
    with pytest.raises(Conflict, match="until"):
        await endless.completed()


async def test_ends_that_are_none_are_refused_by_name(kitchen: Kitchen) -> None:
    async def handler(changes: Any) -> None: ...

    for until in ("later", datetime(2031, 5, 30), {}, {1: -1}, 7):
        with pytest.raises(InvalidValue, match="until"):
            Processor("orders", "kitchen", handler, until=until)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="future"):
        await kitchen.serve("c", until=datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(InvalidValue, match="until"):
        one = next(iter((await kitchen.orders.ranges()).open)).id
        await kitchen.serve("d", until={one: 1})
