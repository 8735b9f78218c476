"""Checkpoints that are thinned out: fewer writes, and nothing is forgotten where it counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import InvalidValue
from relevo.feed import CheckpointEvery
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from tests.feed.ledger import POSITIONS
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.kernel.postgres import Wakeups

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
OFTEN = CheckpointEvery(batches=4)
SELDOM = CheckpointEvery(batches=1_000)


class Positions:
    """Every position that is stored."""

    def __init__(self, kitchen: Kitchen) -> None:
        self._kitchen = kitchen

    async def install(self) -> None:
        async def work(tx: Any) -> None:
            await tx.execute("create schema relevo_trace")
            await tx.execute(POSITIONS)

        await self._kitchen.database.run(work)

    async def stored(self) -> list[int]:
        rows = await self._kitchen.database.fetch(
            "select position from relevo_trace.position order by seq"
        )
        return [max(msgspec.json.decode(row["position"]).values()) for row in rows]


@pytest.fixture
async def positions(kitchen: Kitchen) -> Positions:
    found = Positions(kitchen)
    await found.install()
    return found


async def write(kitchen: Kitchen, count: int) -> list[int]:
    return [(await kitchen.orders.upsert({"id": str(n), "city": "x"})).lsn for n in range(count)]


async def test_so_many_batches_share_one_write(kitchen: Kitchen, positions: Positions) -> None:
    lsns = await write(kitchen, 12)
    processor = await kitchen.serve(start="beginning", max_items=1, checkpoint_every=OFTEN)
    await kitchen.until_delivered(*range(12))
    await processors.stop(processor)
    written = [lsn for lsn in await positions.stored() if lsn in lsns]
    assert sorted(set(written)) == [lsns[3], lsns[7], lsns[11]]


async def test_a_stop_stores_what_was_finished(kitchen: Kitchen) -> None:  # 9.1
    await write(kitchen, 6)
    processor = await kitchen.serve(start="beginning", max_items=1, checkpoint_every=SELDOM)
    await kitchen.until_delivered(*range(6))
    await processors.stop(processor)
    await kitchen.serve("b")
    await kitchen.orders.upsert({"id": "9", "city": "x"})
    await kitchen.until_delivered(9)
    assert len(kitchen.delivered) == 7


async def test_a_pause_stores_what_was_finished(
    kitchen: Kitchen, positions: Positions, wakeups: Wakeups
) -> None:  # 9.1
    lsns = await write(kitchen, 6)
    await kitchen.serve(start="beginning", max_items=1, checkpoint_every=SELDOM)
    await kitchen.until_delivered(*range(6))
    handle = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    await handle.pause()
    assert lsns[-1] in await positions.stored()


async def test_a_failure_stores_what_was_finished_before_it(
    kitchen: Kitchen, positions: Positions
) -> None:  # 9.1, P3
    lsns = await write(kitchen, 6)
    stored: list[list[int]] = []

    async def fail_at_four(changes: list[Change[Any]]) -> None:
        if changes[0].id == "4":
            stored.append(await positions.stored())
            if len(stored) == 1:
                raise ValueError("no")
        await kitchen.cook(changes)

    await kitchen.serve(
        handler=fail_at_four, start="beginning", max_items=1, checkpoint_every=SELDOM
    )
    await kitchen.until_delivered(*range(6))
    assert lsns[3] not in stored[0]
    assert lsns[3] in stored[1]
    assert kitchen.delivered == [str(n) for n in range(6)]


async def test_what_is_finished_is_stored_when_the_time_is_up_and_nothing_comes(
    kitchen: Kitchen, positions: Positions
) -> None:
    lsns = await write(kitchen, 3)
    every = CheckpointEvery(batches=1_000, seconds=0.05)
    await kitchen.serve(start="beginning", max_items=1, checkpoint_every=every)
    async with asyncio.timeout(30):
        while lsns[-1] not in await positions.stored():
            await asyncio.sleep(0.01)


async def test_a_lost_lease_repeats_no_more_than_was_not_stored(kitchen: Kitchen) -> None:  # P1
    await write(kitchen, 12)
    entered = asyncio.Event()

    async def hang_at_ten(changes: list[Change[Any]]) -> None:
        if changes[0].id == "10" and not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        await kitchen.cook(changes)

    await kitchen.serve(handler=hang_at_ten, start="beginning", max_items=1, checkpoint_every=OFTEN)
    await entered.wait()
    await kitchen.database.write("update relevo.lease set epoch = epoch + 1")
    await kitchen.until_delivered(*range(12))
    repeated = {one for one in kitchen.delivered if kitchen.delivered.count(one) > 1}
    assert repeated == {"8", "9"}


async def test_options_that_do_not_fit_are_refused_by_name() -> None:
    async def handler(changes: Any) -> None: ...

    with pytest.raises(InvalidValue, match="manual"):
        Processor("orders", "kitchen", handler, checkpoint="manual", checkpoint_every=OFTEN)
    for options in ({}, {"batches": 0}, {"seconds": 0.0}):
        with pytest.raises(InvalidValue, match="CheckpointEvery"):
            CheckpointEvery(**options)
