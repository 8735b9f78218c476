"""The log of all versions and deletes, and what expires."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import ItemExists, NotFound
from relevo.store import Create, Delete, Patch, Read, Upsert

if TYPE_CHECKING:
    from relevo.testing import Clock
    from tests.store.conftest import Version, World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


def item(name: str = "1", **members: Any) -> dict[str, Any]:
    return {"id": name, "city": "Vigo", **members}


def body(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def told(log: list[Version]) -> list[tuple[str, Any, Any, bool]]:
    return [(v.operation, body(v.body), body(v.previous), v.ttl_expired) for v in log]


async def test_a_container_that_keeps_no_versions_has_no_log(world: World) -> None:
    await world.orders().upsert(item())
    assert await world.versions() == []


async def test_the_log_is_the_history_of_commits(world: World) -> None:  # F3
    orders = world.orders(versions=DAY, previous_images=True)
    first = await orders.upsert(item(n=1))
    second = await orders.replace(item(n=2))
    with pytest.raises(ItemExists):
        await orders.create(item(n=3))
    await orders.delete("1", "Vigo")
    with pytest.raises(NotFound):
        await orders.delete("1", "Vigo")
    third = await orders.create(item(n=4))
    log = await world.versions()
    assert told(log) == [
        ("create", item(n=1), None, False),
        ("replace", item(n=2), item(n=1), False),
        ("delete", None, item(n=2), False),
        ("create", item(n=4), None, False),
    ]
    assert [v.previous_lsn for v in log] == [None, first.lsn, second.lsn, None]
    assert [v.lsn for v in (log[0], log[1], log[3])] == [first.lsn, second.lsn, third.lsn]
    assert [v.pk for v in log] == ['["Vigo"]'] * 4


async def test_previous_images_are_kept_only_where_asked_for(world: World) -> None:
    orders = world.orders(versions=DAY)
    await orders.upsert(item(n=1))
    await orders.upsert(item(n=2))
    assert [v.previous for v in await world.versions()] == [None, None]


async def test_every_concurrent_write_is_in_the_log_once(world: World) -> None:  # F3
    orders = world.orders(versions=DAY)
    other = (await world.another()).container("orders")
    await orders.describe()
    results = await asyncio.gather(
        *(
            handle.create({"id": str(n % 40), "city": n % 7})
            for n in range(100)
            for handle in (orders, other)
        ),
        return_exceptions=True,
    )
    created = {(one.lsn, one.id) for one in results if not isinstance(one, BaseException)}
    log = await world.versions()
    assert {(v.lsn, v.id) for v in log} == created
    assert len(log) == len(created)
    assert len({v.lsn for v in log}) == len(log)  # strangers' calls stay separate groups


async def test_an_expired_item_is_invisible_at_once(world: World, clock: Clock) -> None:  # 2.8
    orders = world.orders(ttl=60)
    await orders.create(item())
    await orders.create(item("ever", ttl=-1))
    await orders.create(item("long", ttl=600))
    await clock.advance(61)
    with pytest.raises(NotFound):
        await orders.read("1", "Vigo")
    with pytest.raises(NotFound):
        await orders.replace(item())
    with pytest.raises(NotFound):
        await orders.delete("1", "Vigo")
    with pytest.raises(NotFound):
        await orders.patch("1", "Vigo", [{"op": "set", "path": "/n", "value": 1}])
    with pytest.raises(NotFound):
        await orders.batch("Vigo", [Read("1")])
    assert [one.id async for one in orders.query()] == ["ever", "long"]
    await clock.advance(540)
    assert [one.id async for one in orders.query()] == ["ever"]


async def test_a_write_begins_an_items_time_anew(world: World, clock: Clock) -> None:
    orders = world.orders(ttl=60)
    await orders.create(item())
    await clock.advance(50)
    await orders.patch("1", "Vigo", [{"op": "set", "path": "/n", "value": 1}])
    await clock.advance(50)
    assert (await orders.read("1", "Vigo")).body["n"] == 1
    await orders.upsert(item(ttl=-1))
    await clock.advance(1_000)
    assert (await orders.read("1", "Vigo")).body == item(ttl=-1)


async def test_without_a_containers_ttl_an_items_own_is_just_a_member(
    world: World, clock: Clock
) -> None:
    orders = world.orders()
    await orders.create(item(ttl=1))
    await clock.advance(100)
    assert (await orders.read("1", "Vigo")).body == item(ttl=1)
    assert await world.store.purge_expired() == 0


async def test_the_purge_tells_the_feed_what_expired(world: World, clock: Clock) -> None:  # F3
    orders = world.orders(versions=DAY, previous_images=True, ttl=-1)
    first = await orders.create(item(n=1, ttl=60))
    await orders.create(item("2"))
    await clock.advance(61)
    assert await world.store.purge_expired() == 1
    assert await world.store.purge_expired() == 0
    log = await world.versions()
    assert told(log) == [
        ("create", item(n=1, ttl=60), None, False),
        ("create", item("2"), None, False),
        ("delete", None, item(n=1, ttl=60), True),
    ]
    assert log[2].previous_lsn == first.lsn
    assert log[2].ts > log[1].ts
    assert [one.id async for one in orders.query()] == ["2"]


async def test_an_item_written_over_an_expired_one_follows_its_end(  # F3
    world: World, clock: Clock
) -> None:
    orders = world.orders(versions=DAY, previous_images=True, ttl=60)
    first = await orders.create(item(n=1))
    await orders.create(item("2"))
    await clock.advance(61)
    second = await orders.create(item(n=2))
    await orders.batch("Vigo", [Upsert(item("2", n=1)), Upsert(item("2", n=2))])
    log = await world.versions()
    assert told(log)[2:] == [
        ("delete", None, item(n=1), True),
        ("create", item(n=2), None, False),
        ("delete", None, item("2"), True),
        ("create", item("2", n=1), None, False),
        ("replace", item("2", n=2), item("2", n=1), False),
    ]
    assert [log[2].previous_lsn, log[3].previous_lsn] == [first.lsn, None]
    assert log[2].lsn == log[3].lsn == second.lsn
    assert await world.store.purge_expired() == 0


async def test_an_expired_item_is_missing_to_a_batch(world: World, clock: Clock) -> None:
    orders = world.orders(versions=DAY, ttl=60)
    await orders.create(item())
    await clock.advance(61)
    with pytest.raises(NotFound):
        await orders.batch(
            "Vigo", [Create(item("2")), Patch("1", [{"op": "remove", "path": "/n"}])]
        )
    with pytest.raises(NotFound):
        await orders.batch("Vigo", [Create(item("2")), Delete("1")])
    done = await orders.batch("Vigo", [Create(item()), Delete("1")])
    assert done[1] is None
    assert [v.operation for v in await world.versions()] == ["create", "delete", "create", "delete"]


async def test_the_purge_takes_any_number_in_steps(world: World, clock: Clock) -> None:
    orders = world.orders(versions=DAY, ttl=60)
    plain = world.store.container("plain", "/city", ttl=60)
    await orders.bulk([{"id": str(n), "city": n} for n in range(25)])
    await plain.bulk([{"id": str(n), "city": n} for n in range(25)])
    await clock.advance(61)
    sizes = [await world.store.purge_expired(20) for _ in range(4)]
    assert sizes == [20, 20, 10, 0]
    ends = [v for v in await world.versions() if v.ttl_expired]
    assert {v.id for v in ends} == {str(n) for n in range(25)}
    assert len({v.lsn for v in ends}) == 25  # each is a group of its own
    assert await world.versions("plain") == []


async def test_the_purge_stamps_into_open_ranges(world: World, clock: Clock) -> None:  # F9
    orders = world.orders(versions=DAY, ttl=60, ranges=1)
    await orders.bulk([{"id": str(n), "city": n} for n in range(20)])
    (old,) = (await orders.ranges()).open
    children = await orders.split(old.id)
    await clock.advance(61)
    assert await world.store.purge_expired() == 20
    ends = [v for v in await world.versions() if v.ttl_expired]
    assert {v.range_id for v in ends} == {child.id for child in children}
    sealed = (await orders.ranges()).by_id[old.id].sealed_lsn
    assert sealed is not None
    assert min(v.lsn for v in ends) > sealed


async def test_the_purge_leaves_what_somebody_writes(world: World, clock: Clock) -> None:
    orders = world.orders(versions=DAY, ttl=60)
    await orders.create(item())
    await orders.create(item("2"))
    await clock.advance(61)
    async with world.database.transaction() as tx:
        await tx.execute("select from relevo.item where id = '1' for update")
        assert await world.store.purge_expired() == 1
    assert await world.store.purge_expired() == 1


async def test_time_and_position_meet_in_an_index(world: World, clock: Clock) -> None:  # 12.3
    orders = world.orders(versions=DAY, ttl=60, ranges=1)
    written = []
    for n in range(3):
        written.append(await orders.create(item(str(n))))
        await clock.advance(10)
    await clock.advance(60)
    await world.store.purge_expired()
    rows = await world.database.fetch("select at, lsn from relevo.feed_time order by at")
    assert [row["lsn"] for row in rows[:3]] == [one.lsn for one in written]
    assert all(row["at"] <= one.ts for row, one in zip(rows, written, strict=False))
    first_end = min(v.lsn for v in await world.versions() if v.ttl_expired)
    assert [row["lsn"] for row in rows[3:]] == [first_end]
