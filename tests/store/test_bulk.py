"""Bulk writes: each item by itself, in any number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue, ItemExists, NotFound
from relevo.store import bulk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.store.conftest import World

pytestmark = pytest.mark.anyio


def item(number: int, **members: Any) -> dict[str, Any]:
    return {"id": str(number), "city": number % 7, **members}


async def test_every_item_has_its_outcome_in_its_place(world: World) -> None:
    orders = world.orders()
    await orders.create(item(3))
    result = await orders.bulk([item(1), {"city": 1}, item(3), item(4)], "create")
    assert [one.ok for one in result.outcomes] == [True, False, False, True]
    assert [one.id for one in result.outcomes] == ["1", None, "3", "4"]
    assert {n: type(error) for n, error in result.failures.items()} == {
        1: InvalidValue,
        2: ItemExists,
    }
    assert result.written == 2
    stored = await orders.read("4", 4)
    assert (result.outcomes[3].etag, result.outcomes[3].lsn) == (stored.etag, stored.lsn)


async def test_an_upsert_says_what_it_created(world: World) -> None:
    orders = world.orders()
    await orders.create(item(1))
    result = await orders.bulk([item(1), item(2)])
    assert [one.created for one in result.outcomes] == [False, True]


async def test_items_can_be_replaced_and_deleted_in_bulk(world: World) -> None:
    orders = world.orders()
    await orders.bulk([item(n) for n in range(10)])
    replaced = await orders.bulk([item(n, x=1) for n in range(11)], "replace")
    assert {n: type(error) for n, error in replaced.failures.items()} == {10: NotFound}
    assert {one.body["x"] async for one in orders.query()} == {1}
    deleted = await orders.bulk([item(n) for n in range(5, 11)], "delete")
    assert deleted.written == 5
    with pytest.raises(InvalidValue, match="kind is one of"):
        await orders.bulk([], "merge")  # type: ignore[arg-type]
    assert sorted([one.id async for one in orders.query()]) == ["0", "1", "2", "3", "4"]


async def test_items_with_one_id_are_written_in_their_order(world: World) -> None:
    orders = world.orders()
    result = await orders.bulk([item(n % 2, n=n) for n in range(30)])
    lsns = [one.lsn for one in result.outcomes[::2]]
    assert lsns == sorted(lsns, key=lambda lsn: lsn or 0)
    assert [one.body["n"] async for one in orders.query()] == [28, 29]


async def test_any_source_is_read_in_windows_with_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BULK_ITEMS", 40)
    seen: list[int] = []

    async def source() -> AsyncIterator[dict[str, Any]]:
        for n in range(100):
            assert n - (seen[-1] if seen else 0) <= 40  # no more than a window ahead
            yield item(n)

    orders = world.orders()
    result = await orders.bulk(source(), progress=seen.append)
    assert seen == [40, 80, 100]
    assert result.written == 100
    assert (await orders.bulk([])).outcomes == ()
    monkeypatch.setattr(bulk, "BULK_BYTES", 1_000)
    seen.clear()
    await orders.bulk([item(n, x="x" * 400) for n in range(7)], progress=seen.append)
    assert seen == [3, 6, 7]
