"""Checkpoints of several leases ride in one statement, and none waits for another's lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.feed.processing.journal import Checkpoint, Checkpoints
from relevo.store.keys import epk
from tests.feed.test_processor import Kitchen, kitchen
from tests.feed.test_upsets import lsns, until_stored

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


def cities() -> list[str]:
    """One key in each of the four ranges."""
    found: dict[str, str] = {}
    for n in range(200):
        found.setdefault(epk((f"c{n}",))[0], f"c{n}")
    return [found[digit] for digit in "0123"]


async def test_leases_that_end_calls_together_share_a_statement(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # 4.5
    sizes: list[int] = []
    store_all = Checkpoints._store_all

    async def counted(self: Checkpoints, entries: list[Checkpoint]) -> Any:
        sizes.append(len(entries))
        return await store_all(self, entries)

    monkeypatch.setattr(Checkpoints, "_store_all", counted)
    gate, inside = asyncio.Event(), set[str]()

    async def slow(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        inside.add(ctx.lease_token)
        await gate.wait()
        await kitchen.cook(changes)

    await kitchen.serve(handler=slow)
    for n, city in enumerate(cities()):
        await kitchen.orders.upsert({"id": str(n), "city": city})
    await kitchen.until(lambda: len(inside) == 4, "every lease is in a call")
    gate.set()
    for lsn in (await lsns(kitchen)).values():
        await until_stored(kitchen, lsn)
    assert sum(sizes) == 4
    assert len(sizes) < 4


async def test_a_lease_that_somebody_writes_holds_up_no_other(kitchen: Kitchen) -> None:
    processor = await kitchen.serve()
    await kitchen.until(lambda: len(processor.leases) == 4, "it holds all leases")
    first, *_, last = cities()
    async with kitchen.database.transaction() as tx:
        await tx.execute("select from relevo.lease where name like '%-10' for update")
        await kitchen.orders.upsert({"id": "0", "city": first})
        await kitchen.until_delivered(0)
        await kitchen.orders.upsert({"id": "1", "city": last})
        await until_stored(kitchen, (await lsns(kitchen))["1"])
        held = await tx.fetchval("select position from relevo.lease where name like '%-10'")
        assert set(msgspec.json.decode(held).values()) == {0}
    await until_stored(kitchen, (await lsns(kitchen))["0"])
    assert kitchen.delivered == ["0", "1"]


async def test_a_stale_epoch_is_refused_and_its_neighbours_are_stored(
    kitchen: Kitchen,
) -> None:  # L2
    processor = await kitchen.serve()
    await kitchen.until(lambda: len(processor.leases) == 4, "it holds all leases")
    entries = [
        Checkpoint(
            one.fence.lease_id, one.epoch - (n == 0), processor._now.host_incarnation,
            '{"7": 7}', None, None, False,
        )
        for n, one in enumerate(processor.leases)
    ]  # fmt: skip
    found = await asyncio.gather(*map(processor._now.checkpoints.store, entries))
    assert found == [False, True, True, True]
    rows = await kitchen.database.fetch("select id from relevo.lease where position = '{\"7\": 7}'")
    assert {row["id"] for row in rows} == {one.lease_id for one in entries[1:]}
