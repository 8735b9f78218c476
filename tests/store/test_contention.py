"""Transactions that hold items: who waits for them, and who does not."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import psycopg
import pytest

from relevo import limits
from relevo.errors import Closed, DatabaseUnavailable, ItemExists, ItemLocked, NotFound
from relevo.store import Create, Delete, Item, Upsert, writes
from relevo.store.service import StorePart
from tests.store.test_races import check_history, split, three

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.kernel.postgres import Database, Transaction
    from relevo.store import Container
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
MORE = [{"op": "incr", "path": "/n", "value": 1}]
PUT = "select relevo.put_item('orders', i) from unnest($1::jsonb[]) as i"
Put = Callable[["Container[dict[str, Any]]", "Transaction", dict[str, Any]], "Awaitable[Any]"]


def text(item: dict[str, Any]) -> str:
    return msgspec.json.encode(item).decode()


async def put_by_sql(orders: Container[Any], tx: Transaction, item: dict[str, Any]) -> None:
    await tx.execute(PUT, [text(item)])


async def put_by_call(orders: Container[Any], tx: Transaction, item: dict[str, Any]) -> None:
    await orders.upsert(item, tx=tx)


def named(name: Any, **members: Any) -> dict[str, Any]:
    return {"id": str(name), "city": "Vigo", **members}


async def deadlocks(database: Database) -> int:
    """Transactions of this database that PostgreSQL has ended so far."""
    await database.fetch("select pg_stat_force_next_flush()")
    found: int = await database.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return found


@pytest.mark.parametrize("put", [put_by_sql, put_by_call])
@pytest.mark.parametrize("exists", [False, True])
async def test_an_idle_transaction_holds_up_nobody_who_wants_other_items(
    world: World, put: Put, exists: bool
) -> None:
    orders = world.orders(ranges=1)
    await orders.describe()
    if exists:
        await orders.create(named("held"))
    async with world.database.transaction() as tx:
        await put(orders, tx, named("held", by="tx"))
        async with asyncio.timeout(30):
            others = await asyncio.gather(*(orders.upsert(named(n)) for n in range(300)))
            for n in range(10):
                others.append(await orders.patch(str(n), "Vigo", MORE))
                batch = await orders.batch("Vigo", [Create(named(f"{n}b")), Upsert(named(n))])
                others += [one for one in batch if one]
    held = await orders.read("held", "Vigo")
    assert held.body == named("held", by="tx")
    assert held.lsn > max(one.lsn for one in others)  # it was committed after them


@pytest.mark.parametrize("exists", [False, True])
async def test_only_those_who_want_the_held_item_wait_and_in_their_order(
    world: World, exists: bool
) -> None:
    orders = world.orders(ranges=1, versions=DAY)
    await orders.describe()
    if exists:
        await orders.create(named("held"))
    async with world.database.transaction() as tx:
        await orders.upsert(named("held", by="tx"), tx=tx)
        calls = [
            asyncio.create_task(orders.upsert(named("held" if n % 20 == 0 else n, by=n)))
            for n in range(100)
        ]
        free = [call for n, call in enumerate(calls) if n % 20]
        async with asyncio.timeout(30):
            await asyncio.gather(*free)
        await world.until_waiting()
        assert [call.done() for n, call in enumerate(calls) if n % 20 == 0] == [False] * 5
    done = await asyncio.gather(*calls)
    log = [one for one in await world.versions() if one.id == "held"]
    bodies = [msgspec.json.decode(one.body or "")["by"] for one in log[-6:]]
    assert bodies == ["tx", 0, 20, 40, 60, 80]
    assert [one.lsn for one in log[-5:]] == [done[n].lsn for n in range(0, 100, 20)]
    check_history(await world.versions())


async def test_many_held_items_do_not_use_up_the_connections(world: World) -> None:
    orders = world.orders(ranges=1)
    names = [f"held{n}" for n in range(40)]
    await orders.bulk([named(one) for one in names[:20]])
    async with world.database.transaction() as tx:
        for name in names:
            await orders.upsert(named(name, n=1), tx=tx)
        calls: list[asyncio.Task[Any]] = [
            asyncio.create_task(orders.upsert(named(name, n=2))) for name in names
        ]
        for name in names[:20]:
            calls.append(asyncio.create_task(orders.patch(name, "Vigo", MORE)))
            calls.append(asyncio.create_task(orders.batch("Vigo", [Delete(name)])))
        await world.until_waiting(limits.ITEM_WAITERS_MAX)
        async with asyncio.timeout(30):
            await asyncio.gather(*(orders.upsert(named(n)) for n in range(50)))
            await asyncio.gather(*(orders.patch(str(n), "Vigo", MORE) for n in range(50)))
        assert not any(call.done() for call in calls)
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in results if isinstance(one, BaseException)]
    assert all(isinstance(one, NotFound) for one in refused)  # a patch behind its delete


async def test_an_item_that_stays_held_is_told_to_its_writers_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ITEM_WAIT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(writes, "SLICE_SECONDS_MAX", 0.1)
    orders = world.orders()
    await orders.create(named("old"))
    async with world.database.transaction() as tx:
        await orders.upsert(named("new"), tx=tx)
        await orders.upsert(named("old", by="tx"), tx=tx)
        results = await asyncio.gather(
            orders.create(named("new")),
            orders.upsert(named("old")),
            orders.patch("old", "Vigo", MORE),
            orders.batch("Vigo", [Create(named("x")), Create(named("new"))]),
            orders.upsert(named("free")),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [ItemLocked] * 4 + [Item]
        assert "'new'" in str(results[0])
        with pytest.raises(NotFound):
            await orders.read("x", "Vigo")  # nothing of the batch was done
    assert (await orders.read("old", "Vigo")).body == named("old", by="tx")
    assert (await orders.upsert(named("old"))).body == named("old")


async def test_who_waits_learns_what_the_transaction_came_to(world: World) -> None:
    orders = world.orders()
    async with world.database.transaction() as tx:
        await orders.create(named("1", by="tx"), tx=tx)
        call = asyncio.create_task(orders.create(named("1", by="call")))
        await world.until_waiting()
    with pytest.raises(ItemExists):
        await call
    with pytest.raises(ZeroDivisionError):
        async with world.database.transaction() as tx:
            await orders.create(named("2", by="tx"), tx=tx)
            call = asyncio.create_task(orders.create(named("2", by="call")))
            await world.until_waiting()
            raise ZeroDivisionError
    assert (await call).body["by"] == "call"


async def test_an_item_that_was_deleted_and_made_again_is_found(world: World) -> None:
    orders = world.orders()
    await orders.create(named("1", n=1))
    async with world.database.transaction() as tx:
        await orders.delete("1", "Vigo", tx=tx)
        await orders.create(named("1", n=10), tx=tx)
        calls = [
            asyncio.create_task(orders.patch("1", "Vigo", MORE)),
            asyncio.create_task(orders.replace(named("1", n=20))),
        ]
        await world.until_waiting(2)
    await asyncio.gather(*calls)
    assert (await orders.read("1", "Vigo")).body["n"] in (20, 21)


async def test_a_cancelled_writer_leaves_the_line(world: World) -> None:
    orders = world.orders()
    async with world.database.transaction() as tx:
        await orders.create(named("1", by="tx"), tx=tx)
        first, second = (asyncio.create_task(orders.upsert(named("1", by=n))) for n in range(2))
        await world.until_waiting()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    assert (await second).body["by"] == 1
    assert (await orders.read("1", "Vigo")).body["by"] == 1


async def test_a_store_that_closes_lets_nobody_wait(world: World) -> None:
    other = await world.another()
    orders = other.container("orders", "/city")
    async with world.database.transaction() as tx:
        await world.orders().create(named("1"), tx=tx)
        call = asyncio.create_task(orders.create(named("1")))
        await world.until_waiting()
        await StorePart(other).close()
        with pytest.raises(Closed):
            await call


async def test_a_group_commits_what_is_free_however_many_new_items_are_held(world: World) -> None:
    orders = world.orders(ranges=1)
    async with world.database.transaction() as tx:
        for n in range(0, 60, 3):
            await orders.create(named(n, by="tx"), tx=tx)
        calls = [asyncio.create_task(orders.upsert(named(n, by="call"))) for n in range(60)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(call for n, call in enumerate(calls) if n % 3))
        assert not any(call.done() for n, call in enumerate(calls) if n % 3 == 0)
    await asyncio.gather(*calls)
    assert {one.body["by"] async for one in orders.query()} == {"call"}


async def test_a_row_that_fails_its_group_repeats_nobody_who_waits(world: World) -> None:
    orders = world.orders(ranges=1, versions=DAY)
    await orders.describe()
    await world.database.run(
        lambda tx: tx.execute("alter table relevo.item add constraint bad check (id <> 'bad')")
    )
    async with world.database.transaction() as tx:
        await orders.create(named("held"), tx=tx)
        first = asyncio.create_task(orders.upsert(named("held")))
        await world.until_waiting()
        names = ["held", *map(str, range(20)), "bad", *map(str, range(20, 40))]
        calls = [asyncio.create_task(orders.upsert(named(one))) for one in names]
        async with asyncio.timeout(30):
            done = await asyncio.gather(*calls[1:], return_exceptions=True)
        assert [type(one) for one in done if not isinstance(one, Item)] == [
            asyncpg.CheckViolationError
        ]
    await asyncio.gather(first, calls[0])
    assert [one.id for one in await world.versions()].count("held") == 3


async def test_an_idle_transaction_outlives_a_split(world: World) -> None:
    orders = world.orders(ranges=1, versions=DAY)
    for one in range(3):
        await orders.create({"id": "before", "city": one})
    async with world.database.transaction() as tx:
        for city in range(20):
            await orders.upsert({"id": "held", "city": city}, tx=tx)
        await orders.split((await orders.ranges()).open[0].id)
        async with asyncio.timeout(30):
            await asyncio.gather(*(orders.create({"id": "free", "city": c}) for c in range(20)))
        late = asyncio.create_task(orders.upsert({"id": "held", "city": 7, "by": "call"}))
        await world.until_waiting()
    await late
    opened = {one.id for one in (await orders.ranges()).open}
    log = [one for one in await world.versions() if one.id != "before"]
    assert {one.range_id for one in log} == opened
    assert all(a.lsn < b.lsn or (a.lsn, a.ordinal) < (b.lsn, b.ordinal) or a.range_id != b.range_id
               for a, b in pairwise(log))  # fmt: skip


async def _by_call(world: World, connection: int, orders: Container[dict[str, Any]]) -> None:
    for number in range(150):
        async with world.database.transaction() as tx:
            for n in range(10):
                await orders.create(named(f"{connection}-{number}-{n}"), tx=tx)


async def _by_asyncpg(world: World, connection: int, orders: Container[dict[str, Any]]) -> None:
    own = await asyncpg.connect(world.url)
    try:
        for number in range(150):
            async with own.transaction():
                for n in range(10):
                    await own.execute(PUT, [text(named(f"{connection}-{number}-{n}"))])
    finally:
        await own.close()


async def _by_psycopg(world: World, connection: int, orders: Container[dict[str, Any]]) -> None:
    async with await psycopg.AsyncConnection.connect(world.url) as own:
        for number in range(150):
            for n in range(10):
                await own.execute(
                    "select relevo.put_item('orders', %s::jsonb)",
                    [text(named(f"{connection}-{number}-{n}"))],
                )
            await own.commit()


@pytest.mark.parametrize("write", [_by_call, _by_asyncpg, _by_psycopg])
async def test_transactions_that_share_no_item_never_deadlock(world: World, write: Any) -> None:
    orders = world.orders(ranges=2)
    await orders.describe()
    await asyncio.gather(*(write(world, connection, orders) for connection in range(8)))
    assert await deadlocks(world.database) == 0
    count = await world.database.fetchval("select count(*) from relevo.item where lsn > 0")
    assert count == 12_000


async def test_a_deadlock_over_shared_items_names_the_remedy(world: World) -> None:
    orders = world.orders()
    await orders.describe()
    first, second = asyncio.Event(), asyncio.Event()

    async def write(names: str, mine: asyncio.Event, other: asyncio.Event) -> None:
        async with world.database.transaction() as tx:
            await orders.upsert(named(names[0]), tx=tx)
            mine.set()
            await other.wait()
            await orders.upsert(named(names[1]), tx=tx)

    results = await asyncio.gather(
        write("ab", first, second), write("ba", second, first), return_exceptions=True
    )
    [error] = [one for one in results if one is not None]
    assert isinstance(error, DatabaseUnavailable)  # one was rolled back, and may be tried again
    assert "write shared items in one order" in str(error)


async def test_the_sql_function_names_the_remedy_too(world: World) -> None:
    orders = world.orders()
    await orders.describe()

    def write(names: str, own: psycopg.Connection[Any], barrier: Any) -> str:
        try:
            own.execute("select relevo.put_item('orders', %s::jsonb)", [text(named(names[0]))])
            barrier.wait(30)
            own.execute("select relevo.put_item('orders', %s::jsonb)", [text(named(names[1]))])
        except psycopg.errors.DeadlockDetected as error:
            return str(error)
        finally:
            own.close()
        return ""

    barrier = threading.Barrier(2)
    told = await asyncio.gather(
        *(
            asyncio.to_thread(write, names, psycopg.connect(world.url), barrier)
            for names in ("ab", "ba")
        )
    )
    [error] = [one for one in told if one]
    assert "write shared items in one order" in error


async def test_all_ways_of_writing_keep_one_history(world: World) -> None:  # F3, F4
    handles = await three(world, ranges=2, versions=DAY)

    async def churn(handle: Container[dict[str, Any]], seed: int) -> None:
        choose = random.Random(seed)
        database = (await handle._open()).database
        for _ in range(15):
            numbers = sorted(choose.sample(range(8), 3))
            items: list[dict[str, Any]] = [
                {"id": str(n), "city": n % 3, "by": seed} for n in numbers
            ]
            try:
                match choose.randrange(5):
                    case 0:
                        await asyncio.gather(*(handle.upsert(one) for one in items))
                    case 1:
                        await handle.delete(items[0]["id"], items[0]["city"])
                    case 2:
                        await handle.patch(items[0]["id"], items[0]["city"], MORE)
                    case 3:
                        async with database.transaction() as tx:
                            await tx.execute(PUT, [text(one) for one in items])
                            await asyncio.sleep(choose.random() / 100)
                    case _:
                        async with database.transaction() as tx:
                            for one in items:
                                await handle.upsert(one, tx=tx)
                            await handle.patch(items[2]["id"], items[2]["city"], MORE, tx=tx)
            except NotFound:
                continue

    await asyncio.gather(*(churn(handle, n) for n, handle in enumerate(handles * 4)))
    assert await deadlocks(world.database) == 0
    log = await world.versions()
    check_history(log)
    assert all(a.ts <= b.ts for a, b in pairwise(log) if a.range_id == b.range_id)
    good, bad = split([await handles[0].read(str(n), n % 3) for n in range(8) if _lives(log, n)])
    assert not bad
    for item in good:
        last = next(one for one in reversed(log) if one.id == item.id)
        assert (last.lsn, msgspec.json.decode(last.body or "")) == (item.lsn, item.body)


def _lives(log: Any, number: int) -> bool:
    changes = [one for one in log if one.id == str(number)]
    return bool(changes) and changes[-1].operation != "delete"
