"""Many writers at once: who wins, who is told, and in which order it happened."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from relevo.errors import ConditionNotMet, ItemExists, NotFound, OutcomeUnknown, RelevoError
from relevo.store import Delete, Item, Upsert, open_container
from relevo.testing import Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.store import Container
    from tests.store.conftest import Version, World

pytestmark = pytest.mark.anyio
_DAY = timedelta(days=1)


def split(results: Sequence[Any]) -> tuple[list[Item[Any]], list[RelevoError]]:
    good = [one for one in results if isinstance(one, Item)]
    bad = [one for one in results if isinstance(one, RelevoError)]
    assert len(good) + len(bad) == len(results), results
    return good, bad


async def three(world: World, **options: Any) -> list[Container[dict[str, Any]]]:
    """Handles of one container in three processes."""
    first = world.orders(**options)
    await first.describe()
    others = [await world.another() for _ in range(2)]
    return [first, *(one.container("orders") for one in others)]


async def test_of_concurrent_creates_of_one_item_exactly_one_succeeds(world: World) -> None:
    handles = await three(world)
    for round_ in range(10):
        results = await asyncio.gather(
            *(
                handle.create({"id": str(round_), "city": "Vigo", "by": n})
                for n, handle in enumerate(handles * 4)
            ),
            return_exceptions=True,
        )
        good, bad = split(results)
        assert len(good) == 1
        assert {type(one) for one in bad} == {ItemExists}
        assert (await handles[0].read(str(round_), "Vigo")).body == good[0].body


async def test_of_two_replaces_with_one_etag_exactly_one_succeeds(world: World) -> None:
    handles = await three(world)
    item = await handles[0].create({"id": "1", "city": "Vigo", "n": 0})
    for round_ in range(1, 11):
        results = await asyncio.gather(
            *(
                handle.replace({**item.body, "n": round_, "by": n}, if_match=item.etag)
                for n, handle in enumerate(handles)
            ),
            return_exceptions=True,
        )
        good, bad = split(results)
        assert len(good) == 1
        assert {type(one) for one in bad} == {ConditionNotMet}
        item = await handles[0].read("1", "Vigo")
        assert item == good[0]


async def test_concurrent_patches_all_count(world: World) -> None:
    handles = await three(world)
    await handles[0].create({"id": "1", "city": "Vigo"})
    more = [{"op": "incr", "path": "/n", "value": 1}]
    await asyncio.gather(*(handle.patch("1", "Vigo", more) for handle in handles * 10))
    assert (await handles[0].read("1", "Vigo")).body["n"] == 30


async def test_a_refused_call_does_not_fail_its_neighbours(world: World) -> None:
    orders = world.orders()
    await orders.create({"id": "there", "city": "Vigo"})
    calls = [
        orders.create({"id": f"{n}", "city": "Vigo"})
        if n % 3
        else orders.create({"id": "there", "city": "Vigo"})
        for n in range(60)
    ]
    good, bad = split(await asyncio.gather(*calls, return_exceptions=True))
    assert (len(good), len(bad)) == (40, 20)
    assert {item.id async for item in orders.query()} == {"there", *(one.id for one in good)}


async def test_a_row_that_fails_its_statement_does_not_fail_its_neighbours(world: World) -> None:
    orders = world.orders(ranges=1)
    await orders.describe()
    await world.database.run(
        lambda tx: tx.execute("alter table relevo.item add constraint bad check (id <> 'bad')")
    )
    ids = [*map(str, range(20)), "bad", *map(str, range(20, 40))]
    results = await asyncio.gather(
        *(orders.create({"id": one, "city": "Vigo"}) for one in ids), return_exceptions=True
    )
    assert [type(one) for one in results if not isinstance(one, Item)] == [
        asyncpg.CheckViolationError
    ]
    assert [item.id async for item in orders.query()] == sorted(set(ids) - {"bad"})


async def test_calls_ride_in_groups_of_few_ranges(world: World) -> None:  # D4, 4.2
    orders = world.orders(ranges=16)
    await orders.describe()
    await asyncio.gather(*(orders.create({"id": str(n), "city": n}) for n in range(800)))
    counts = world.database.metrics.statements.of("items.write")
    assert counts.statements <= 3 * open_container.LANES
    commits = await world.database.fetch(
        "select count(distinct range_id) from relevo.item group by xmin::text"
    )
    assert max(row[0] for row in commits) <= 16 // open_container.LANES


async def test_large_bodies_are_spread_over_statements(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_container, "GROUP_BYTES_MAX", 1_000)
    orders = world.orders(ranges=1)
    await orders.create({"id": "5", "city": "Vigo"})
    calls = [orders.create({"id": str(n), "city": "Vigo", "x": "x" * 300}) for n in range(12)]
    good, bad = split(await asyncio.gather(*calls, return_exceptions=True))
    assert (len(good), len(bad)) == (11, 1)
    commits = await world.database.fetch("select count(*) from relevo.item group by xmin::text")
    assert max(row[0] for row in commits) == 3


async def test_versions_of_one_item_are_in_commit_order(world: World) -> None:  # F4
    handles = await three(world, versions=_DAY)

    async def write(handle: Container[dict[str, Any]], by: int) -> list[Item[dict[str, Any]]]:
        return [
            await handle.upsert({"id": "1", "city": "Vigo", "by": by, "n": n}) for n in range(15)
        ]

    written = await asyncio.gather(*(write(handle, n) for n, handle in enumerate(handles)))
    for own in written:  # a call that returned lies before one that was made afterwards
        assert all(a.lsn < b.lsn and a.ts <= b.ts for a, b in pairwise(own))
    log = await world.versions()
    assert [one.lsn for one in log] == sorted(one.lsn for own in written for one in own)
    assert all(b.previous_lsn == a.lsn for a, b in pairwise(log))
    assert (await handles[0].read("1", "Vigo")).lsn == log[-1].lsn


async def test_time_does_not_run_back_inside_a_range(world: World) -> None:  # 4.2, 12.1
    orders = world.orders(ranges=1, versions=_DAY)
    await orders.create({"id": "held", "city": "Vigo"})
    other = (await world.another()).container("orders")
    async with world.database.transaction() as tx:
        await tx.execute("select from relevo.item for update")
        late = asyncio.create_task(orders.upsert({"id": "held", "city": "Vigo"}))
        await world.until_waiting()
        # Its statement began after the one that waits, and commits before it.
        early = await other.create({"id": "free", "city": "Lugo"})
    assert (await late).lsn > early.lsn
    assert (await late).ts >= early.ts
    log = await world.versions()
    assert all(a.ts <= b.ts for a, b in pairwise(log))


async def test_writers_of_few_keys_never_wait_in_a_circle(world: World) -> None:  # 4.2
    handles = await three(world, ranges=2, versions=_DAY)

    async def churn(handle: Container[dict[str, Any]], seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(25):
            number = choose.randrange(12)
            key, city = str(number), number % 3
            item = {"id": key, "city": city}
            try:
                match choose.randrange(4):
                    case 0:
                        await handle.upsert(item)
                    case 1:
                        await handle.delete(key, city)
                    case 2:
                        await handle.batch(city, [Upsert(item), Delete(key), Upsert(item)])
                    case _:
                        await handle.patch(key, city, [{"op": "incr", "path": "/n", "value": 1}])
            except NotFound:
                continue

    await asyncio.gather(*(churn(handle, n) for n, handle in enumerate(handles * 5)))
    retries = [
        (await handle._open()).database.metrics.store_retries._value.get() for handle in handles
    ]
    assert retries == [0, 0, 0]
    check_history(await world.versions())


def check_history(log: Sequence[Version]) -> None:
    """Each change of an item fits what the one before it left. F3, F4."""
    state: dict[str, Version] = {}
    for change in log:
        before = state.get(change.id)
        there = before is not None and before.operation != "delete"
        assert (change.operation != "create") == there, (before, change)
        assert change.previous_lsn == (before.lsn if before and there else None)
        state[change.id] = change


async def test_an_outcome_that_is_not_known_is_told_to_every_caller(world: World) -> None:
    with Proxy.to(world.url) as proxy:
        orders = (await world.another(proxy)).container("orders", "/city", ranges=1)
        await orders.describe()
        proxy.on_bytes("downstream", b"created", proxy.reset)
        results = await asyncio.gather(
            *(orders.create({"id": str(n), "city": "Vigo"}) for n in range(3)),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [OutcomeUnknown] * 3
        assert [item.id async for item in orders.query()] == ["0", "1", "2"]  # this time it had


async def test_a_patch_whose_outcome_is_not_known_is_not_repeated(world: World) -> None:
    with Proxy.to(world.url) as proxy:
        orders = (await world.another(proxy)).container("orders", "/city")
        await orders.create({"id": "1", "city": "Vigo"})
        proxy.on_bytes("downstream", b"COMMIT\0", proxy.reset)
        with pytest.raises(OutcomeUnknown):
            await orders.patch("1", "Vigo", [{"op": "incr", "path": "/n", "value": 1}])
        assert (await orders.read("1", "Vigo")).body["n"] == 1
