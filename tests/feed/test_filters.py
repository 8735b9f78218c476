"""Filters: only what a unit or a reader wants is delivered, and the rest moves the position."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import BadContinuation, InvalidValue, SettingsMismatch
from relevo.feed.operating.estimator import Estimator
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.reading import filters, scanning
from relevo.feed.reading.filters import Filter
from relevo.feed.reading.pull import Reader
from relevo.store import Upsert
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Store

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
PIZZA = [("dish", "=", "pizza")]


def item(n: int, **more: Any) -> dict[str, Any]:
    return {"id": str(n), "city": "x", "dish": "pizza" if n % 10 == 0 else "soup", **more}


async def ids(reader: Reader, max_items: int = 100) -> list[list[str]]:
    return [[c.id for c in page.changes] async for page in reader.follow(max_items)]


async def test_a_reader_gets_what_it_wants_in_order_and_ends_behind_the_rest(
    database: Database, store: Store, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:  # F4, E5
    monkeypatch.setattr(scanning, "SCAN_ROWS", 7)
    monkeypatch.setattr(scanning, "SCANS_MAX", 2)
    orders = store.container("orders", "/city", ranges=1)
    for n in range(60):
        await orders.create(item(n))
    reader = await Reader.open(database, wakeups, "orders", filter=PIZZA)
    pages = await ids(reader, 1)
    assert [one for page in pages for one in page] == ["0", "10", "20", "30", "40", "50"]
    assert pages[-1] == []  # caught up
    again = await Reader.open(
        database, wakeups, "orders", filter=PIZZA, continuation=reader.continuation
    )
    await orders.create(item(70))
    assert await ids(again) == [["70"], []]


async def test_a_long_stretch_of_what_is_not_wanted_comes_in_empty_pages_that_go_on(
    database: Database, store: Store, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:  # E5
    monkeypatch.setattr(scanning, "SCAN_ROWS", 4)
    monkeypatch.setattr(scanning, "SCANS_MAX", 2)
    orders = store.container("orders", "/city", ranges=1)
    for n in range(1, 30):
        await orders.create({**item(n), "dish": "soup"})
    await orders.create(item(30))
    reader = await Reader.open(database, wakeups, "orders", filter=PIZZA)
    seen, tokens = [], set()
    while not (page := await reader.page(4)).caught_up:
        seen += [c.id for c in page.changes]
        assert page.continuation not in tokens
        tokens.add(page.continuation)
    assert seen == ["30"]
    assert len(tokens) > 2  # progress showed on the way


async def test_a_group_keeps_together_what_is_wanted_of_it(
    database: Database, store: Store, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:  # F5
    monkeypatch.setattr(scanning, "SCAN_ROWS", 3)
    orders = store.container("orders", "/city", ranges=1)
    await orders.batch("x", [Upsert(item(n)) for n in (0, 1, 2, 10, 11, 20)])
    await orders.create(item(30))
    reader = await Reader.open(database, wakeups, "orders", filter=PIZZA)
    assert await ids(reader, 1) == [["0", "10", "20"], ["30"], []]


async def test_operations_and_previous_images_decide_in_all_versions_mode(
    database: Database, store: Store, wakeups: Wakeups
) -> None:  # F3
    orders = store.container(
        "orders", "/city", ranges=1, versions=timedelta(days=1), previous_images=True
    )
    for n in (1, 10):
        await orders.create(item(n))
        await orders.replace(item(n, more=1))
        await orders.delete(str(n), "x")

    async def read(wanted: Filter) -> list[tuple[str, str | None]]:
        reader = await Reader.open(database, wakeups, "orders", mode="all_versions", filter=wanted)
        return [(c.id, c.operation) async for page in reader.follow() for c in page.changes]

    where = (("dish", "=", "pizza"),)
    assert await read(Filter(operations=("delete",))) == [("1", "delete"), ("10", "delete")]
    assert await read(Filter(where=where)) == [
        ("10", "create"), ("10", "replace"), ("10", "delete"),
    ]  # fmt: skip
    assert await read(Filter(where=where, operations=("create",))) == [("10", "create")]


async def test_a_token_goes_on_with_the_same_filter_only(
    database: Database, store: Store, wakeups: Wakeups
) -> None:  # 16.3
    await store.container("orders", "/city").create(item(1))
    filtered = (await Reader.open(database, wakeups, "orders", filter=PIZZA)).continuation
    plain = (await Reader.open(database, wakeups, "orders")).continuation
    for token, wanted in ((filtered, None), (plain, PIZZA), (filtered, [("dish", "=", "soup")])):
        with pytest.raises(BadContinuation, match="filter"):
            await Reader.open(database, wakeups, "orders", continuation=token, filter=wanted)


@pytest.mark.parametrize(
    ("wanted", "mode", "message"),
    [
        ([("dish", "like", "p%")], "latest", "operator"),
        ([("dish",)], "latest", "condition"),
        (Filter(operations=("delete",)), "latest", "all_versions"),
        (Filter(operations=("drop",)), "all_versions", "operation"),  # type: ignore[arg-type]
        (PIZZA, "events", "event log"),
    ],
)
def test_what_is_no_filter_is_refused_by_name(wanted: Any, mode: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        filters.check(wanted, mode)


def test_equal_filters_are_equal_however_they_are_spelt() -> None:
    one = filters.check([("dish", "in", {"b", "a"})], "latest")
    other = filters.check([["dish", "in", ("a", "b")]], "latest")  # type: ignore[list-item]
    assert one == other
    assert one is not None
    assert other is not None
    assert one.digest == other.digest
    assert filters.check([], "latest") is None


async def test_a_unit_delivers_what_it_wants_and_stands_behind_the_rest(
    kitchen: Kitchen, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:  # P1, P4
    monkeypatch.setattr(scanning, "SCAN_ROWS", 5)
    monkeypatch.setattr(scanning, "SCANS_MAX", 2)
    await kitchen.orders.bulk([item(n, city=f"c{n % 5}") for n in range(100)])
    await kitchen.serve(start="beginning", filter=PIZZA, max_items=3)
    await kitchen.until_delivered(*range(0, 100, 10))
    await kitchen.orders.bulk([item(n, city=f"c{n % 5}") for n in range(101, 110)])
    await kitchen.hosts["a"].aclose()
    assert sorted(kitchen.delivered, key=int) == [str(n) for n in range(0, 100, 10)]
    await kitchen.orders.bulk([item(200)])
    estimator = Estimator(kitchen.database, "orders", "kitchen", "leases")
    total = await estimator.total()
    assert (total.estimated_lag, total.exact) == (1, True)  # E1
    unit = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    assert set((await unit.state()).leases[0].positions.values()) != {0}


async def test_all_hosts_of_a_unit_want_the_same(kitchen: Kitchen) -> None:  # U3
    await kitchen.serve(filter=PIZZA)
    await kitchen.serve("same", filter=[["dish", "=", "pizza"]])
    with pytest.raises(SettingsMismatch, match="filter"):
        await kitchen.serve("other")
