"""Containers come and go, and their ranges are split while others write."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import limits
from relevo.errors import Closed, Conflict, ContainerRecreated, InvalidValue, NotFound
from relevo.kernel.leases.loops import Duty
from relevo.store import Create, Delete, Upsert
from relevo.store.service import StorePart

if TYPE_CHECKING:
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
        with pytest.raises(ContainerRecreated, match="created again"):
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


async def test_a_drop_waits_for_writes_under_way(world: World) -> None:
    orders = world.orders(versions=DAY)
    await orders.describe()
    async with world.database.transaction() as tx:
        await tx.execute("lock table relevo.item_version in share mode")
        writer = asyncio.create_task(orders.create(PIZZA))  # stamped, and held up while it writes
        await world.until_waiting(1)
        drop = asyncio.create_task(orders.drop())
        await world.until_waiting(2)
    assert (await writer).body == PIZZA
    assert await drop
    assert await world.store.purge_dropped() == 2  # the item and its version


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
    duties = StorePart(world.store).duties()
    assert {type(duty) for duty in duties} == {Duty}
    for duty in duties:
        await duty.work()
    assert await world.database.fetchval("select count(*) from relevo.item") == 0


async def test_a_closed_store_takes_nothing_new(world: World) -> None:
    orders = world.orders()
    await orders.create(PIZZA)
    await StorePart(world.store).close()
    with pytest.raises(Closed):
        await orders.create({"id": "2", "city": "Vigo"})
    with pytest.raises(Closed):
        await world.store.container("other", "/x").describe()


async def test_readers_of_the_feed_are_woken_by_what_was_committed(  # 4.7
    world: World, clock: Clock
) -> None:
    orders = world.orders(versions=DAY, ttl=60)
    topic = f"feed:{(await orders.describe()).id}"
    more = [{"op": "incr", "path": "/n", "value": 1}]
    acts: list[Any] = [
        lambda: orders.create(PIZZA),
        lambda: orders.patch("1", "Vigo", more),
        lambda: orders.batch("Vigo", [Upsert(PIZZA)]),
        lambda: orders.bulk([PIZZA]),
        lambda: clock.advance(61),
        world.store.purge_expired,
        lambda: orders.upsert(PIZZA),
        lambda: orders.delete("1", "Vigo"),
        lambda: orders.delete("1", "Vigo"),
        lambda: orders.batch("Vigo", [Upsert(PIZZA), Delete("2")]),
        world.store.purge_expired,
        orders.drop,
    ]
    heard = []
    with world.wakeups.signal(topic) as woken:
        for act in acts:
            with suppress(NotFound):
                await act()
            heard.append(await woken.wait(0))
    assert heard == [True] * 4 + [False] + [True] * 3 + [False] * 3 + [True]
