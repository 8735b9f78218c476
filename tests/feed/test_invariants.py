"""Invariants that no other test holds in full."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.feed.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from relevo.feed import Change

pytestmark = pytest.mark.anyio

REFUSE = """
create function refuse() returns trigger language plpgsql as $$
begin
  raise exception 'told to refuse';
end $$;
create trigger refuse before {event} on {table} for each row execute function refuse();
"""


@pytest.fixture
async def shop(relevo_url: str, app: App) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(relevo_url, app, stack)
        shop.orders = app.container("orders", "/city", ranges=2, versions=timedelta(days=1))
        await shop.orders.describe()
        yield shop


async def _state(shop: Shop) -> tuple[int, set[str]]:
    """How many letters there are, and the positions."""
    letters = await shop.client.database.fetchval("select count(*) from relevo.dead_letter")
    rows = await shop.client.database.fetch("select position::text from relevo.lease")
    return letters, {row["position"] for row in rows}


@pytest.mark.parametrize(
    ("table", "event"),
    [("relevo.dead_letter", "insert"), ("relevo.lease", "update of position")],
    ids=["the letter is refused", "the position is refused"],
)
async def test_a_letter_and_the_position_past_it_are_stored_both_or_neither(
    shop: Shop, table: str, event: str
) -> None:  # P9
    calls = 0

    async def fail(changes: list[Change[Any]]) -> None:
        nonlocal calls
        calls += 1
        raise ValueError("no")

    async with shop.hosting("warm", leases_in="leases"):
        await shop.until_owners({"warm": 2})
    database = shop.client.database
    await database.run(lambda tx: tx.execute(REFUSE.format(table=table, event=event)))
    before = await _state(shop)
    await shop.host("a", fail, max_attempts=1, dead_letter=True)
    await shop.write(1)
    await until(lambda: calls >= 2, "it was condemned, and that was refused")
    assert await _state(shop) == before
    await database.run(lambda tx: tx.execute(f"drop trigger refuse on {table}"))

    async def given_up() -> bool:
        return (await _state(shop))[0] == 1

    await until(given_up, "it is given up")
    letters, positions = await _state(shop)
    assert letters == 1
    assert positions != before[1]


async def test_the_last_delivery_of_an_item_that_is_written_all_the_time_is_its_final_body(
    shop: Shop,
) -> None:  # F2, F4
    seen: dict[str, list[int]] = {}

    async def note(changes: list[Change[Any]]) -> None:
        for change in changes:
            seen.setdefault(change.id, []).append(change.item["version"])

    async def write(item_id: str) -> None:
        for version in range(60):
            await shop.orders.upsert({"id": item_id, "city": item_id, "version": version})

    await shop.host("a", note, max_items=3)
    await asyncio.gather(*(write(f"i{n}") for n in range(6)))
    await until(lambda: all(history[-1] == 59 for history in seen.values()), "the last are seen")
    assert len(seen) == 6
    assert all(history == sorted(set(history)) for history in seen.values())


async def test_the_estimator_counts_what_a_unit_of_all_versions_will_be_given(
    shop: Shop,
) -> None:  # E1
    async with shop.hosting("a", mode="all_versions"):
        await shop.until_owners({"a": 2})
    for version in range(3):
        await shop.orders.upsert({"id": "1", "city": "x", "version": version})
    await shop.orders.delete("1", "x")
    total = await shop.orders.change_feed_estimator("kitchen").total()
    assert (total.estimated_lag, total.exact) == (4, True)
    await shop.host("b", mode="all_versions")
    await until(lambda: shop.seen["b"]["1"] == 4, "all four are delivered")
