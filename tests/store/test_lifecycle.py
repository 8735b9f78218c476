"""Containers come and go, and their ranges are split while others write."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.errors import Closed, Conflict, ContainerRecreated, InvalidValue, NotFound
from relevo.leases.loops import Duty
from relevo.store import Create, Upsert
from relevo.store.ranges import WHOLE

if TYPE_CHECKING:
    from relevo.store import Container, RangeMap
    from relevo.testing import Clock
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
PIZZA = {"id": "1", "city": "Vigo"}


async def test_a_container_is_made_when_it_is_first_used(world: World) -> None:
    orders = world.orders(ttl=timedelta(minutes=1), versions=DAY, previous_images=True)
    assert await world.store.containers() == []
    info = await orders.describe()
    assert (info.name, info.partition_key, info.ttl) == ("orders", ("/city",), 60)
    assert (info.versions, info.previous_images) == (DAY, True)
    assert await world.store.containers() == [info]
    assert len((await orders.ranges()).open) == 4


async def test_a_handle_that_does_not_say_how_finds_what_exists(world: World) -> None:
    with pytest.raises(NotFound, match="give a partition_key"):
        await world.store.container("orders").read("1", "Vigo")
    await world.orders().create(PIZZA)
    assert (await world.store.container("orders").read("1", "Vigo")).body == PIZZA


async def test_a_handle_that_says_otherwise_is_refused_by_name(world: World) -> None:
    await world.orders(ttl=60, versions=DAY).describe()
    others: list[tuple[dict[str, Any], str]] = [
        ({"partition_key": "/customer"}, "partition_key"),
        ({"partition_key": ["/city", "/customer"]}, "partition_key"),
        ({"ttl": 61}, "ttl"),
        ({"versions": 2 * DAY}, "versions"),
        ({"versions": DAY, "previous_images": True}, "previous_images"),
    ]
    for options, pointer in others:
        with pytest.raises(Conflict, match=f"'orders' exists with {pointer}=") as caught:
            await world.store.container("orders", **options).upsert(PIZZA)
        assert caught.value.pointer == pointer
    await world.store.container("orders", "/city", ttl=60, ranges=9).upsert(PIZZA)


async def test_many_make_one_container(world: World) -> None:
    stores = [world.store, *[await world.another() for _ in range(3)]]
    made = await asyncio.gather(
        *(store.container("orders", "/city").describe() for store in stores * 3)
    )
    assert len(set(made)) == 1
    assert await world.database.fetchval("select count(*) from relevo.feed_range") == 16


async def test_containers_are_listed_by_name_in_pages(world: World) -> None:
    for name in ("b", "d", "a", "c"):
        await world.store.container(name, "/x", ranges=1).describe()
    first = await world.store.containers(limit=3)
    rest = await world.store.containers(after=first[-1].name, limit=3)
    assert [info.name for info in first + rest] == ["a", "b", "c", "d"]
    with pytest.raises(InvalidValue):
        await world.store.containers(limit=limits.PAGE_ROWS_MAX + 1)


async def test_a_container_made_again_has_nothing_of_the_old_one(world: World) -> None:  # 4.9
    orders = world.orders(versions=DAY)
    await orders.create(PIZZA)
    before = await orders.describe()
    assert await orders.drop()
    assert await world.store.containers() == []
    after = await orders.describe()
    assert after.incarnation != before.incarnation
    assert [item async for item in orders.query()] == []
    with pytest.raises(NotFound):
        await orders.read("1", "Vigo")
    assert await world.versions() == []
    await orders.create(PIZZA)


async def test_dropping_nothing_says_so(world: World) -> None:
    assert not await world.orders().drop()
    assert not await world.store.drop("nothing")


async def test_other_processes_learn_that_a_container_was_dropped(world: World) -> None:  # 4.9
    orders = world.orders()
    other = (await world.another()).container("orders")
    await orders.create(PIZZA)
    query = other.query()
    assert len((await query.page(1)).items) == 1
    await orders.drop()
    for attempt in (
        lambda: other.upsert(PIZZA),
        lambda: other.read("1", "Vigo"),
        lambda: other.batch("Vigo", [Upsert(PIZZA)]),
        lambda: other.ranges(),
        lambda: query.page(1),
    ):
        with pytest.raises(NotFound, match="orders"):
            await attempt()


async def test_other_processes_are_told_once_that_a_container_was_made_anew(
    world: World,
) -> None:  # 4.9
    orders = world.orders()
    strangers = [(await world.another()).container("orders") for _ in range(4)]
    for stranger in strangers:
        await orders.upsert(PIZZA)
        await stranger.read("1", "Vigo")
    await orders.drop()
    await orders.create({**PIZZA, "n": 1})
    attempts: list[Any] = [
        strangers[0].upsert({**PIZZA, "n": 2}),
        strangers[1].read("1", "Vigo"),
        strangers[2].batch("Vigo", [Create({"id": "2", "city": "Vigo"})]),
        strangers[3].patch("1", "Vigo", [{"op": "incr", "path": "/n", "value": 1}]),
    ]
    for attempt in attempts:
        with pytest.raises(ContainerRecreated, match="made anew"):
            await attempt
    for stranger in strangers:
        assert [item.body async for item in stranger.query()] == [{**PIZZA, "n": 1}]


async def test_writers_under_way_are_either_before_the_drop_or_refused(world: World) -> None:
    orders = world.orders(ranges=2)
    await orders.describe()
    other = (await world.another()).container("orders")

    begun = asyncio.Event()

    async def write() -> int:
        for n in range(10_000):
            try:
                await other.upsert({"id": str(n), "city": n})
            except NotFound:
                return n
            begun.set()
        raise AssertionError("the drop was never noticed")

    async with asyncio.TaskGroup() as tasks:
        writer = tasks.create_task(write())
        await begun.wait()
        assert await orders.drop()
    assert writer.result() == await world.database.fetchval("select count(*) from relevo.item")


async def test_what_a_dropped_container_left_is_removed(world: World, clock: Clock) -> None:
    orders = world.orders(versions=DAY)
    keeps = world.store.container("keeps", "/city", versions=DAY)
    for container in (orders, keeps):
        await container.bulk([{"id": str(n), "city": n} for n in range(30)])
    await orders.split((await orders.ranges()).open[0].id)
    await orders.upsert({"id": "0", "city": 0})
    await orders.drop()
    assert [await world.store.purge_dropped(20) for _ in range(3)] == [40, 21, 0]
    counts = """select (select count(*) from relevo.item),
                       (select count(*) from relevo.item_version),
                       (select count(*) from relevo.dropped_container)"""
    assert tuple(await world.database.fetchrow(counts) or ()) == (30, 30, 1)
    await clock.advance(timedelta(days=2))  # nobody's old transaction can still commit
    assert await world.store.purge_dropped() == 0
    assert tuple(await world.database.fetchrow(counts) or ()) == (30, 30, 0)


async def test_housekeeping_does_it_all(world: World, clock: Clock) -> None:
    orders = world.orders(ttl=60)
    gone = world.store.container("gone", "/city")
    for container in (orders, gone):
        await container.bulk([{"id": str(n), "city": n} for n in range(700)])
    await gone.drop()
    await clock.advance(61)
    duties = world.store.duties()
    assert {type(duty) for duty in duties} == {Duty}
    for duty in duties:
        await duty.work()
    assert await world.database.fetchval("select count(*) from relevo.item") == 0


async def test_a_closed_store_takes_nothing_new(world: World) -> None:
    orders = world.orders()
    await orders.create(PIZZA)
    await world.store.close()
    with pytest.raises(Closed):
        await orders.create({"id": "2", "city": "Vigo"})
    with pytest.raises(Closed):
        await world.store.container("other", "/x").describe()


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
