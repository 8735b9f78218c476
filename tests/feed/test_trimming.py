"""Feeds stay within bounds: old versions go and are refused by name, large ranges are cut."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import FeedExpired
from relevo.feed.operating import range_splitting, trimming
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.reading.pull import Reader
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Store
    from relevo.testing.clock import Clock

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
RETENTION = timedelta(minutes=5)


class Log:
    """A container that keeps versions, and readers of them."""

    def __init__(self, database: Database, store: Store, wakeups: Wakeups) -> None:
        self.database = database
        self.wakeups = wakeups
        self.orders = store.container("kept", "/city", ranges=2, versions=RETENTION)

    async def write(self, *numbers: int) -> None:
        result = await self.orders.bulk([{"id": str(n), "city": f"c{n}"} for n in numbers])
        assert not result.failures

    async def read(self, **where: Any) -> tuple[list[str], str]:
        """Read to the end; what came and where to go on."""
        reader = await Reader.open(
            self.database, self.wakeups, "kept", mode="all_versions", **where
        )
        seen: list[str] = []
        async for page in reader.follow():
            seen += [change.id for change in page.changes]
        return sorted(seen, key=int), reader.continuation

    async def trim(self) -> int:
        return await trimming.trim(self.database, self.wakeups)


@pytest.fixture
async def log(database: Database, store: Store, wakeups: Wakeups) -> Log:
    log = Log(database, store, wakeups)
    await log.orders.describe()
    return log


async def test_what_is_past_the_retention_goes_and_older_positions_are_refused(
    log: Log, clock: Clock
) -> None:  # F7
    _, beginning = await log.read()
    await log.write(*range(10))
    _, middle = await log.read()
    assert await log.trim() == 0
    await clock.advance(RETENTION / 2)
    await log.write(*range(10, 20))
    await clock.advance(RETENTION / 2 + timedelta(seconds=2))
    assert await log.trim() == 10
    assert await log.trim() == 0
    with pytest.raises(FeedExpired) as refused:
        await log.read(continuation=beginning)
    assert refused.value.oldest > 0
    assert await log.read(continuation=middle) == await log.read()  # nothing after it went
    assert (await log.read())[0] == [str(n) for n in range(10, 20)]
    assert (await log.orders.read("3", "c3")).body["id"] == "3"  # items stay; old versions go


async def test_a_log_that_nobody_writes_any_more_is_trimmed_to_its_end_also_after_a_split(
    log: Log, clock: Clock
) -> None:  # F7, F9
    _, beginning = await log.read()
    await log.write(*range(10))
    _, end = await log.read()
    for one in list((await log.orders.ranges()).open):
        await log.orders.split(one.id)
    await clock.advance(RETENTION + timedelta(seconds=2))
    assert await log.trim() == 10
    assert (await log.read())[0] == []
    assert (await log.read(continuation=end))[0] == []
    with pytest.raises(FeedExpired):
        await log.read(continuation=beginning)


async def test_an_owner_that_is_too_far_behind_is_told_and_skips_nothing_silently(
    kitchen: Kitchen, store: Store, wakeups: Wakeups, clock: Clock
) -> None:  # F7
    await kitchen.orders.drop()
    kitchen.orders = store.container("orders", "/city", ranges=1, versions=RETENTION)
    await kitchen.orders.describe()
    busy, gate = asyncio.Event(), asyncio.Event()
    errors: list[Exception] = []

    async def slow(changes: list[Change[Any]]) -> None:
        busy.set()
        await gate.wait()
        await kitchen.cook(changes)

    processor = await kitchen.serve(handler=slow, mode="all_versions", max_items=1)
    processor.on_error(lambda token, error: errors.append(error))
    await kitchen.orders.create({"id": "1", "city": "x"})
    await kitchen.orders.create({"id": "2", "city": "x"})
    async with asyncio.timeout(30):
        await busy.wait()
    await clock.advance(RETENTION + timedelta(seconds=2))
    assert await trimming.trim(kitchen.database, wakeups) == 2
    gate.set()
    await kitchen.orders.create({"id": "3", "city": "x"})
    await kitchen.until(lambda: bool(errors), "the owner is told")
    assert isinstance(errors[0], FeedExpired)
    assert "3" not in kitchen.delivered
    handle = UnitHandle(kitchen.database, wakeups, "orders", "kitchen", "leases")
    await handle.pause()
    await handle.rewind("beginning")  # the operator decides to go on with what is left
    await handle.resume()
    await kitchen.until_delivered(3)


async def test_a_caught_up_owner_does_not_notice_that_its_log_is_trimmed(
    kitchen: Kitchen, store: Store, wakeups: Wakeups, clock: Clock
) -> None:
    await kitchen.orders.drop()
    kitchen.orders = store.container("orders", "/city", ranges=2, versions=RETENTION)
    await kitchen.orders.describe()
    processor = await kitchen.serve(mode="all_versions")
    errors: list[Exception] = []
    processor.on_error(lambda token, error: errors.append(error))
    await kitchen.write(*range(10))
    await kitchen.until_delivered(*range(10))
    async with asyncio.timeout(30):  # delivered is not yet stored
        while await kitchen.database.fetchval(
            "select count(*) from relevo.feed_lease where checkpoint_at is null"
        ):
            await asyncio.sleep(0.01)
    epochs = [lease.epoch for lease in processor.leases]
    await clock.advance(RETENTION + timedelta(seconds=2))
    await trimming.trim(kitchen.database, wakeups)
    await kitchen.write(20)
    await kitchen.until_delivered(20)
    assert [lease.epoch for lease in processor.leases] == epochs
    assert not errors


async def test_ranges_that_hold_too_much_are_split_by_estimate(
    kitchen: Kitchen, store: Store
) -> None:  # F9
    await kitchen.serve(start="beginning")
    items = [{"id": str(n), "city": "always the same"} for n in range(400)]
    assert not (await kitchen.orders.bulk(items)).failures
    await kitchen.write(*range(1000, 1010))
    assert await range_splitting.split_large(kitchen.database, store) == []
    await kitchen.database.fetch("analyze relevo.item")
    full = await kitchen.database.fetchval(
        "select range_id from relevo.item group by 1 order by count(*) desc limit 1"
    )
    assert await range_splitting.split_large(kitchen.database, store, items_max=200) == [full]
    assert not (await kitchen.orders.ranges()).by_id[full].open
    assert await range_splitting.split_large(kitchen.database, store, items_max=200) == []
    await kitchen.until_delivered(*range(400), *range(1000, 1010))


async def test_ranges_that_are_written_fast_all_the_time_are_split(
    kitchen: Kitchen, store: Store
) -> None:  # F9, 3.3
    await kitchen.serve(start="beginning")
    for _ in range(10):
        await kitchen.orders.upsert({"id": "hot", "city": "over and over"})
    await kitchen.orders.bulk([{"id": str(n), "city": "always the same"} for n in range(200)])
    busy = await kitchen.database.fetchval("select range_id from relevo.item where id = '7'")
    assert busy != await kitchen.database.fetchval(
        "select range_id from relevo.item where id = 'hot'"
    )
    rate = {"per_second": 0.3, "seconds": 600.0}
    assert (
        await range_splitting.split_busy(kitchen.database, store, **rate) == []
    )  # not all the time
    await kitchen.database.write(
        "insert into relevo.feed_time (range_id, at, lsn) select i.range_id,"
        " date_trunc('second', relevo.now()) - make_interval(secs => n), min(i.lsn)"
        " from relevo.item i, generate_series(0, 650) n group by 1, 2 on conflict do nothing"
    )
    assert await range_splitting.split_busy(kitchen.database, store) == []  # not that fast
    assert await range_splitting.split_busy(kitchen.database, store, **rate) == [busy]
    assert await range_splitting.split_busy(kitchen.database, store, **rate) == []
    assert not (await kitchen.orders.ranges()).by_id[busy].open
    await kitchen.until_delivered(*range(200))


async def test_times_are_thinned_and_starts_at_an_instant_stay_the_same(
    log: Log, clock: Clock
) -> None:  # 12.3, F7
    instants = []
    for n in range(12):
        await log.write(n)
        instants.append(await log.database.fetchval("select relevo.now()"))
        await clock.advance(timedelta(seconds=1 if n % 4 else 61))

    async def starts() -> list[set[str]]:
        found = []
        for at in instants:
            reader = await Reader.open(log.database, log.wakeups, "kept", start=at)
            found.append({c.id async for page in reader.follow() for c in page.changes})
        return found

    before = await starts()
    assert [len(one) for one in before] == list(range(11, -1, -1))
    count = "select count(*) from relevo.feed_time"
    rows = await log.database.fetchval(count)
    assert await trimming.thin_times(log.database) == 0
    await clock.advance(timedelta(hours=25))
    gone = await trimming.thin_times(log.database)
    assert gone > 0
    assert await log.database.fetchval(count) == rows - gone
    assert await trimming.thin_times(log.database) == 0
    assert await starts() == before
    await clock.advance(timedelta(days=31))
    assert await trimming.thin_times(log.database) > 0
    assert await starts() == before
