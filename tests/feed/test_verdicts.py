"""What handlers raise to say what becomes of their changes: the same classes as in jobs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import Fail, RetryLater, Suspend
from relevo.kernel.leases import Directory
from relevo.store import Upsert
from tests.feed.diner import UNIT, Diner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database
    from relevo.store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def diner(relevo_url: str, database: Database, store: Store) -> AsyncIterator[Diner]:
    async with AsyncExitStack() as stack:
        diner = Diner(relevo_url, store, database, stack)
        diner.orders = store.container("orders", "/city", ranges=4)
        await diner.orders.describe()
        yield diner


@pytest.mark.parametrize(
    "raised", [RetryLater(0.001), RetryLater(), ExceptionGroup("both", [RetryLater(0)])]
)
async def test_a_change_that_is_to_come_later_has_not_failed(
    diner: Diner, raised: Exception
) -> None:
    attempts: list[int] = []

    async def not_yet(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) <= 6:
            raise raised
        await diner.cook(changes)

    await diner.write_one_by_one(1)
    await diner.open(handler=not_yet, dead_letter=True, max_attempts=2)
    await diner.until_delivered(1)
    assert attempts == [1] * 7
    assert diner.heard("error") == []
    assert await diner.letters.list() == []


async def test_fail_gives_a_change_up_without_another_attempt(diner: Diner) -> None:
    async def refuse(changes: list[Change[Any]]) -> None:
        diner.calls.append([change.id for change in changes])
        if "2" in diner.calls[-1]:
            raise Fail(None, "never")
        await diner.cook(changes)

    await diner.orders.batch("x", [Upsert({"id": str(n), "city": "x"}) for n in (1, 2, 3)])
    await diner.open(handler=refuse, dead_letter=True, max_attempts=50)
    await diner.until_delivered(1, 3)
    letters = await diner.letters.list()
    assert [(letter.item_id, letter.message) for letter in letters] == [("2", "never")]
    assert diner.calls.count(["2"]) == 1


async def test_suspend_blocks_the_lease_until_somebody_resumes_it(diner: Diner) -> None:
    broken = True

    async def careful(changes: list[Change[Any]]) -> None:
        if broken:
            raise Suspend("the printer is out of paper")
        await diner.cook(changes)

    await diner.write_one_by_one(1)
    processor = await diner.open(handler=careful)
    await diner.until(lambda: "blocked" in diner.heard("released"), "the lease is let go")
    assert diner.heard("error") == []
    assert any("out of paper" in reason for reason in processor.health().reasons)
    broken = False
    directory = Directory(diner.database, processor._now.poller._wakeups)
    blocked = [one for one in await directory.leases(unit=UNIT) if one.state == "blocked"]
    for lease in blocked:
        await directory.set_state("feed", UNIT, lease.name, "active")
    await diner.until_delivered(1)
    assert len(blocked) == 1
    assert processor.health().ok
