"""Ranges are split while others write, and nobody needs to know."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.errors import Conflict, InvalidValue, NotFound
from relevo.store import Upsert
from relevo.store.ranges import WHOLE

if TYPE_CHECKING:
    from relevo.store import Container, RangeMap
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
PIZZA = {"id": "1", "city": "Vigo"}


def check_tiling(ranges: RangeMap) -> None:
    intervals = [one.interval for one in ranges.open]
    assert (intervals[0].low, intervals[-1].high) == (WHOLE.low, WHOLE.high)
    assert all(a.high == b.low for a, b in pairwise(intervals))


async def test_a_split_seals_a_range_and_opens_two(world: World) -> None:  # 3.3
    orders = world.orders(ranges=2)
    written = await orders.create(PIZZA)
    parent = (await orders.ranges()).open[0]
    left, right = await orders.split(parent.id)
    ranges = await orders.ranges()
    check_tiling(ranges)
    sealed = ranges.by_id[parent.id]
    assert (left.parents, right.parents) == ((parent.id,), (parent.id,))
    assert (left.interval, right.interval) == parent.interval.split(2)
    assert sealed.sealed_lsn is not None
    assert sealed.sealed_lsn > written.lsn
    assert min(left.id, right.id) > max(one.id for one in ranges.by_id.values() if one.id < left.id)
    assert await orders.read("1", "Vigo") == written


async def test_a_range_is_split_where_it_is_asked_for(world: World) -> None:
    orders = world.orders(ranges=1)
    parent = (await orders.ranges()).open[0]
    left, right = await orders.split(parent.id, at="2A")
    assert (left.interval.high, right.interval.low) == ("2A", "2A")
    for range_id, at, error, words in [
        (parent.id, None, Conflict, "was split already"),
        (left.id, "2A", InvalidValue, "is cut at"),
        (left.id, "2a", InvalidValue, "is cut at"),
        (left.id, "1", InvalidValue, "is cut at"),
        (999, None, NotFound, "no range 999"),
    ]:
        with pytest.raises(error, match=words):
            await orders.split(range_id, at)
    check_tiling(await orders.ranges())


async def test_there_are_only_so_many_open_ranges(world: World) -> None:
    orders = world.orders(ranges=limits.RANGES_PER_CONTAINER_MAX)
    with pytest.raises(Conflict, match="at most 1024"):
        await orders.split((await orders.ranges()).open[0].id)


async def test_concurrent_splits_of_one_range_are_one(world: World) -> None:
    orders = world.orders(ranges=1)
    other = (await world.another()).container("orders")
    parent = (await orders.ranges()).open[0]
    results = await asyncio.gather(
        *(handle.split(parent.id) for handle in (orders, other, orders)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in results) == ["Conflict", "Conflict", "tuple"]
    check_tiling(await orders.ranges())


async def test_a_split_while_writers_run_loses_nothing(world: World) -> None:  # F9, F3, F4
    orders = world.orders(ranges=2, versions=DAY)
    await orders.describe()
    handles = [orders, *[(await world.another()).container("orders") for _ in range(2)]]
    acknowledged: dict[tuple[int, str], list[int]] = {}
    stop, progress = asyncio.Event(), asyncio.Semaphore(0)

    async def write(handle: Container[dict[str, Any]], lane: int) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            city, key = n % 8, f"{lane}-{n % 3}"
            item = {"id": key, "city": city, "n": n}
            if n % 5:
                done = await handle.upsert(item)
            else:
                done = (await handle.batch(city, [Upsert(item), Upsert(item)]))[1]  # type: ignore[assignment]
            acknowledged.setdefault((city, key), []).append(done.lsn)
            progress.release()

    async with asyncio.TaskGroup() as tasks:
        for lane in range(9):
            tasks.create_task(write(handles[lane % 3], lane))
        for _ in range(6):
            for _ in range(200):  # in the middle of things
                await progress.acquire()
            open_ranges = (await orders.ranges()).open
            await orders.split(min(open_ranges, key=lambda one: (len(one.parents), one.id)).id)
        stop.set()

    ranges = await orders.ranges()
    check_tiling(ranges)
    log = await world.versions()
    by_key: dict[tuple[str, str], list[int]] = {}
    for version in sorted(log, key=lambda one: (one.lsn, one.ordinal)):
        home = ranges.by_id[version.range_id]
        assert home.sealed_lsn is None or version.lsn < home.sealed_lsn
        assert all(version.lsn > (ranges.by_id[parent].sealed_lsn or 0) for parent in home.parents)
        by_key.setdefault((version.pk, version.id), []).append(version.lsn)
    for (city, key), lsns in acknowledged.items():
        assert lsns == sorted(lsns)
        assert sorted(set(by_key[f"[{city}]", key])) == lsns
    assert {one.range_id for one in log} & {one.id for one in ranges.open if one.parents}
    # After the splits, writes go to the children.
    for city, key in acknowledged:
        await orders.upsert({"id": key, "city": city})
    homes = await world.database.fetch("select distinct range_id from relevo.item")
    assert {row["range_id"] for row in homes} <= {one.id for one in ranges.open}
