"""Items written inside a transaction of the caller: `tx=`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest

from relevo.errors import ConditionNotMet, InvalidValue, ItemExists, NotFound
from relevo.jobs.errors import JobFailed
from relevo.kernel.running.verdicts import Fail
from relevo.store import Create, Delete, Patch, Read, Replace, Upsert
from tests.store.test_races import check_history

if TYPE_CHECKING:
    from relevo import App
    from relevo.store import Container
    from tests.store.conftest import World

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
MORE = [{"op": "incr", "path": "/n", "value": 1}]


def item(name: str, **members: Any) -> dict[str, Any]:
    return {"id": name, "city": "Vigo", **members}


async def names(orders: Container[Any]) -> list[str]:
    return [one.id async for one in orders.query()]


async def test_every_write_belongs_to_the_transaction(world: World) -> None:
    orders = world.orders(versions=DAY, previous_images=True)
    for name in "abcd":
        await orders.create(item(name, n=1))
    async with world.database.transaction() as tx:
        await orders.create(item("new"), tx=tx)
        await orders.upsert(item("a", n=2), tx=tx)
        await orders.replace(item("b", n=2), tx=tx)
        patched = await orders.patch("c", "Vigo", MORE, tx=tx)
        await orders.delete("d", "Vigo", tx=tx)
        await orders.batch("Vigo", [Create(item("e")), Patch("e", MORE), Delete("a")], tx=tx)
        assert patched.body == item("c", n=2)
        assert (await orders.read("new", "Vigo", tx=tx)).body == item("new")
        assert await names(orders) == ["a", "b", "c", "d"]  # nobody else sees it
        assert len(await world.versions()) == 4
    assert await names(orders) == ["b", "c", "e", "new"]
    group = (await world.versions())[4:]
    assert len({one.lsn for one in group}) == 1  # one transaction, one range, one LSN
    assert [(one.id, one.operation) for one in group] == [
        ("new", "create"),
        ("a", "replace"),
        ("b", "replace"),
        ("c", "replace"),
        ("d", "delete"),
        ("e", "create"),
        ("e", "replace"),
        ("a", "delete"),
    ]
    check_history(await world.versions())
    assert (await orders.read("c", "Vigo")).lsn == group[0].lsn


async def test_nothing_is_left_of_a_transaction_that_is_rolled_back(world: World) -> None:
    orders = world.orders(versions=DAY)
    await orders.create(item("old"))
    with pytest.raises(ZeroDivisionError):
        async with world.database.transaction() as tx:
            await orders.upsert(item("old", n=1), tx=tx)
            await orders.create(item("new"), tx=tx)
            raise ZeroDivisionError
    assert [one.body async for one in orders.query()] == [item("old")]
    assert len(await world.versions()) == 1


async def test_a_refused_write_leaves_the_transaction_usable(world: World) -> None:
    orders = world.orders()
    await orders.create(item("old"))
    async with world.database.transaction() as tx:
        with pytest.raises(ItemExists):
            await orders.create(item("old"), tx=tx)
        with pytest.raises(NotFound):
            await orders.replace(item("new"), tx=tx)
        with pytest.raises(NotFound):
            await orders.delete("new", "Vigo", tx=tx)
        with pytest.raises(NotFound):
            await orders.patch("new", "Vigo", MORE, tx=tx)
        with pytest.raises(ConditionNotMet):
            await orders.upsert(item("old"), if_match='"0-1"', tx=tx)
        with pytest.raises(NotFound) as refused:
            await orders.batch("Vigo", [Create(item("x")), Read("x"), Delete("y")], tx=tx)
        assert refused.value.pointer == "/2"
        await orders.create(item("new"), tx=tx)
    assert await names(orders) == ["new", "old"]


async def test_etags_hold_within_the_transaction_and_from_before_it(world: World) -> None:
    orders = world.orders()
    before = await orders.create(item("1"))
    async with world.database.transaction() as tx:
        first = await orders.replace(item("1", n=1), if_match=before.etag, tx=tx)
        assert first.lsn == 0
        second = await orders.replace(item("1", n=2), if_match=first.etag, tx=tx)
        with pytest.raises(ConditionNotMet):
            await orders.replace(item("1", n=3), if_match=first.etag, tx=tx)
    with pytest.raises(ConditionNotMet):
        await orders.replace(item("1", n=4), if_match=second.etag)
    assert (await orders.read("1", "Vigo")).body["n"] == 2


async def test_an_item_may_be_written_many_times_over_many_ranges(world: World) -> None:
    orders = world.orders(versions=DAY, ranges=8)
    async with world.database.transaction() as tx:
        for n in range(3):
            for city in range(20):
                await orders.upsert({"id": "1", "city": city, "n": n}, tx=tx)
    log = await world.versions()
    assert len(log) == 60
    per_range = {one.range_id: one.lsn for one in log}
    assert {(one.range_id, one.lsn) for one in log} == set(per_range.items())
    by_key: dict[str, list[Any]] = {}
    for one in log:
        by_key.setdefault(one.pk, []).append(one.operation)
    assert all(found == ["create", "replace", "replace"] for found in by_key.values())


async def test_a_connection_of_the_callers_own_will_do(world: World) -> None:
    orders = world.orders()
    own = await asyncpg.connect(world.url)
    try:
        async with own.transaction(isolation="serializable"):
            await orders.upsert(item("1"), tx=own)
            await orders.patch("1", "Vigo", MORE, tx=own)
        with pytest.raises(InvalidValue, match="in no transaction"):
            await orders.upsert(item("2"), tx=own)
    finally:
        await own.close()
    assert (await orders.read("1", "Vigo")).body == item("1", n=1)


async def test_what_is_no_transaction_is_refused(world: World) -> None:
    orders = world.orders()
    async with await psycopg.AsyncConnection.connect(world.url) as other:
        for tx in (other, world.database, "tx"):
            with pytest.raises(InvalidValue, match=r"tx is a .* relevo\.put_item"):
                await orders.upsert(item("1"), tx=tx)
            with pytest.raises(InvalidValue, match="tx is a"):
                await orders.batch("Vigo", [Upsert(item("1")), Replace(item("1"))], tx=tx)
    with pytest.raises(NotFound):
        await orders.read("1", "Vigo")


async def test_a_container_that_was_dropped_meanwhile_is_told(world: World) -> None:
    orders = world.orders()
    await orders.create(item("1"))
    other = await world.another()
    await other.container("orders").drop()
    with pytest.raises(NotFound, match="was dropped"):
        async with world.database.transaction() as tx:
            await orders.upsert(item("1"), tx=tx)


async def test_lifetimes_count_as_outside_of_transactions(world: World) -> None:
    orders = world.orders(ttl=60)
    async with world.database.transaction() as tx:
        for name, ttl in (("default", {}), ("own", {"ttl": 600}), ("ever", {"ttl": -1})):
            await orders.upsert(item(name, **ttl), tx=tx)
    rows = await world.database.fetch(
        "select id, round(extract(epoch from expires_at - ts))::integer as lives from relevo.item"
    )
    assert dict(map(tuple, rows)) == {"default": 60, "own": 600, "ever": None}


async def test_a_feed_handler_writes_items_together_with_its_checkpoint(app: App) -> None:  # P5
    orders, totals = app.container("orders", "/city"), app.container("totals", "/city")
    calls, done = 0, asyncio.Event()

    @orders.on_changes("totals", start="beginning")
    async def add(ctx: Any, changes: Any) -> None:
        nonlocal calls
        calls += 1
        async with ctx.transaction() as tx:
            for change in changes:
                await totals.upsert({"id": change.id, "city": "Vigo"}, tx=tx)
                await totals.patch("all", "Vigo", MORE, tx=tx)
            if calls == 1:
                raise RuntimeError("a handler that fails after its writes")
        if (await totals.read("all", "Vigo")).body["n"] == 3:
            done.set()

    await totals.create(item("all"))
    for name in "abc":
        await orders.create(item(name))
    async with app.host(), asyncio.timeout(60):
        await done.wait()
    assert (await totals.read("all", "Vigo")).body["n"] == 3  # once for each change
    assert await names(totals) == ["a", "all", "b", "c"]


async def test_a_job_writes_items_together_with_its_completion(app: App) -> None:
    orders = app.container("orders", "/city")

    @app.job("pay")
    async def pay(ctx: Any, order: str, fails: bool) -> None:
        async with ctx.transaction() as tx:
            await orders.patch(order, "Vigo", [{"op": "set", "path": "/paid", "value": 1}], tx=tx)
            await orders.create(item(f"receipt-{order}"), tx=tx)
            if fails:
                raise Fail(None, "this order cannot be paid")

    await orders.bulk([item("1"), item("2")])
    async with app.host():
        good = await pay.submit(order="1", fails=False)
        bad = await pay.submit(order="2", fails=True)
        await good.wait(60)
        with pytest.raises(JobFailed):
            await bad.wait(60)
    assert [one.body async for one in orders.query()] == [
        item("1", paid=1),
        item("2"),
        item("receipt-1"),
    ]
