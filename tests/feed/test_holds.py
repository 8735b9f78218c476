"""Trimming waits for units that ask for it, within bounds, and tells whom it passes once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import FeedExpired, InvalidValue
from relevo.feed.operating import trimming
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.operating.unit import VersionHold
from relevo.feed.processing import host as processors
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.kernel.postgres import Wakeups
    from relevo.store import Store
    from relevo.testing.clock import Clock

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
RETENTION = timedelta(minutes=5)
OVER = RETENTION + timedelta(seconds=2)


@pytest.fixture
async def kept(kitchen: Kitchen, store: Store) -> Kitchen:
    await kitchen.orders.drop()
    kitchen.orders = store.container("orders", "/city", ranges=1, versions=RETENTION)
    await kitchen.orders.describe()
    return kitchen


async def kept_after_trimming(kitchen: Kitchen, wakeups: Wakeups) -> int:
    """Trim, which hosts do at their own times, too; return how many versions are left."""
    await trimming.trim(kitchen.database, wakeups)
    left: int = await kitchen.database.fetchval("select count(*) from relevo.item_version")
    return left


async def stand(kitchen: Kitchen, wakeups: Wakeups, **options: Any) -> UnitHandle:
    """Make a unit that stands at the beginning, and is served by nobody."""
    processor = await kitchen.serve("maker", mode="all_versions", start="beginning", **options)
    await processors.stop(processor)
    return UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")


async def test_trimming_waits_for_a_unit_that_asks_for_it_up_to_a_time(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # 4.8, F7
    await stand(kept, wakeups, hold=timedelta(minutes=10))
    await kept.write(*range(10))
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 10
    await kept.serve("b", mode="all_versions", hold=timedelta(minutes=10))
    await kept.until_delivered(*range(10))  # nothing was missed
    await kept.hosts["b"].aclose()
    assert await kept_after_trimming(kept, wakeups) == 0  # nobody waits for it any more
    await kept.write(*range(20, 25))
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 5
    await clock.advance(timedelta(minutes=10))
    assert await kept_after_trimming(kept, wakeups) == 0  # never without bound


async def test_trimming_waits_for_so_many_bytes(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # 4.8
    await stand(kept, wakeups, hold=6_000)
    for n in range(10):
        await kept.write(n, text="".join(chr(97 + (n * i * i) % 23) for i in range(1_000)))
    await clock.advance(OVER)
    left = await kept_after_trimming(kept, wakeups)
    held = await kept.database.fetchval(
        "select sum(pg_column_size(v.*)) from relevo.item_version v"
    )
    assert 0 < left < 10
    assert 0 < held <= 6_000
    assert await kept_after_trimming(kept, wakeups) == left


async def test_the_host_that_joined_last_says_how_long_trimming_waits(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:
    await stand(kept, wakeups, hold=timedelta(days=1))
    await kept.write(1)
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 1
    await stand(kept, wakeups)
    assert await kept_after_trimming(kept, wakeups) == 0


async def test_whom_trimming_has_passed_is_told_once(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # F7, 4.8
    unit = await stand(kept, wakeups)
    await unit.pause()
    await kept.write(*range(5))
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 0
    errors: list[Exception] = []
    tried = 0
    processor = await kept.serve("b", mode="all_versions")
    processor.on_error(lambda token, error: errors.append(error))
    serve = processor.symptoms.note

    def count(*told: Any) -> None:
        nonlocal tried
        tried += 1
        serve(*told)

    processor.symptoms.note = count  # type: ignore[assignment, method-assign]
    await unit.resume()
    await kept.until(lambda: tried >= 3, "it was tried again and again")
    assert [type(one) for one in errors] == [FeedExpired]
    assert not kept.delivered


async def test_a_lease_that_missed_nothing_is_not_taken_for_expired_after_a_crash(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # F7, L3
    unit = await stand(kept, wakeups, leases=2)
    low, high = (await unit.state()).leases
    await kept.write(*range(50))
    rows = await kept.database.fetch("select id, epk from relevo.item")
    mine = {int(row["id"]) for row in rows if row["epk"] in low.interval}
    for n in mine:  # only the other half of the range is written
        await kept.orders.delete(str(n), f"c{n % 7}")
    await kept.serve("b", mode="all_versions", leases=2)
    await kept.until_delivered(*range(50))
    await kept.hosts["b"].aclose()
    before = {one.token: one.positions for one in (await unit.state()).leases}
    other = next(n for n in range(50) if n not in mine)
    for _ in range(3):
        await kept.orders.upsert({"id": str(other), "city": f"c{other % 7}"})
    await kept.serve("c", mode="all_versions", leases=2)
    await kept.until(lambda: kept.delivered.count(str(other)) == 4, "the other half goes on")
    await kept.hosts["c"].aclose()
    # As after a crash: what the quiet lease had seen without getting anything was not stored.
    await kept.database.write(
        "update relevo.lease set position = $1::jsonb where name = $2",
        str(before[low.token]).replace("{", '{"').replace(":", '":'), low.token,
    )  # fmt: skip
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 0
    errors: list[Exception] = []
    processor = await kept.serve("d", mode="all_versions", leases=2)
    processor.on_error(lambda token, error: errors.append(error))
    one_of_mine = min(mine)
    await kept.orders.upsert({"id": str(one_of_mine), "city": f"c{one_of_mine % 7}"})
    await kept.until(lambda: kept.delivered[-1] == str(one_of_mine), "it goes on")
    assert not errors
    assert high.token in before


async def test_a_rewind_to_before_what_was_trimmed_is_refused_also_for_a_cleared_lease(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # F7
    unit = await stand(kept, wakeups)
    await unit.pause()
    await unit.snapshot("early")
    await kept.write(*range(5))
    await unit.resume()
    await kept.serve("b", mode="all_versions")
    await kept.until_delivered(*range(5))
    await unit.pause()
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 0
    with pytest.raises(FeedExpired):
        await unit.rewind("early")


async def test_trimming_and_a_slow_handler_that_holds_it(
    kept: Kitchen, wakeups: Wakeups, clock: Clock
) -> None:  # 4.8, P1
    busy, gate = asyncio.Event(), asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        busy.set()
        await gate.wait()
        await kept.cook(changes)

    await kept.serve(handler=slow, mode="all_versions", max_items=1, hold=timedelta(hours=1))
    await kept.write(1, 2, 3)
    async with asyncio.timeout(30):
        await busy.wait()
    await clock.advance(OVER)
    assert await kept_after_trimming(kept, wakeups) == 3
    gate.set()
    await kept.until_delivered(1, 2, 3)


@pytest.mark.parametrize("hold", [0, -1, timedelta(0), True, "1 day"])
def test_what_is_no_bound_is_refused(hold: Any) -> None:
    with pytest.raises(InvalidValue, match="hold is"):
        VersionHold.of(hold)
