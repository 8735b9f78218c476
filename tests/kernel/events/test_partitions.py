"""Days come and go: partitions ahead of time, or when one is missing; trimming drops whole days."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from relevo.errors import DatabaseUnavailable, FeedExpired, InvalidValue
from relevo.kernel.events import reading
from tests.kernel.events.conftest import noted

if TYPE_CHECKING:
    from relevo.testing.clock import Clock
    from tests.kernel.events.conftest import World

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


async def trim(world: World, clock: Clock) -> int:
    """What two turns of the duty do."""
    await world.log.trim()
    await clock.advance(61)
    return await world.log.trim()


async def test_partitions_are_made_ahead_once(world: World) -> None:
    await world.log.prepare()
    made = await world.partitions()
    assert await world.log.prepare() == 0
    assert await world.partitions() == made
    assert len(made) >= 3


async def test_appends_go_on_across_the_ends_of_days(world: World, clock: Clock) -> None:
    for n in range(5):  # nobody prepares: the missing day is made by the append
        await world.append(noted(n))
        await clock.advance(DAY)
    await clock.advance(40 * DAY)  # and one partition covers what was slept through
    await world.append(noted(5))
    assert [one.version for one in await world.all()] == list(range(6))
    rows = await world.database.fetch("select low, high from relevo.event_partition order by low")
    for before, after in pairwise(rows):
        assert before["high"] == after["low"]
    assert len(rows) <= 7


async def test_appenders_that_miss_a_day_together_make_it_once(world: World, clock: Clock) -> None:
    await clock.advance(3 * DAY)
    before = len(await world.partitions())
    await asyncio.gather(*(world.append(noted(n, f"thing/{n}")) for n in range(8)))
    assert len(await world.all()) == 8
    assert len(await world.partitions()) == before + 1


async def test_who_waits_past_the_last_partition_still_writes(world: World, clock: Clock) -> None:
    async with world.database.transaction() as slow:
        await world.log.append(slow, [noted(1)])
        later = asyncio.ensure_future(world.append(noted(2)))
        await world.until_waiting()
        await clock.advance(10 * DAY)
    await later
    assert [one.version for one in await world.all()] == [1, 2]


async def test_a_clock_that_falls_behind_the_first_partition_stops_no_append(
    world: World, clock: Clock
) -> None:
    await clock.server_falls_behind(2 * DAY.total_seconds())
    await world.append(noted(1))
    assert [one.version for one in await world.all()] == [1]


async def test_trimming_drops_whole_days_and_old_positions_expire(
    world: World, clock: Clock
) -> None:
    beginning = (await world.log.read(start="beginning", max_items=1)).continuation
    await world.append(*(noted(n, f"thing/{n}") for n in range(20)))
    seen_half = (await world.log.read(max_items=10)).continuation
    seen_all = await world.end()
    oldest = (await world.partitions())[0]
    old_time = await clock.now()
    await clock.advance(5 * DAY)
    await world.append(noted(100))
    assert await trim(world, clock) == 0
    assert len(await world.all()) == 21
    await clock.advance(4 * DAY)
    assert await trim(world, clock) == 1
    assert oldest not in await world.partitions()
    for position in (beginning, seen_half):
        with pytest.raises(FeedExpired, match="older than what is kept") as refused:
            await world.log.read(position)
        assert refused.value.oldest > 0
    with pytest.raises(FeedExpired):
        await world.log.read(start=old_time)
    # Who had seen it all missed nothing, and who starts anew gets what is kept.
    assert [one.version for one in await world.all(seen_all)] == [100]
    assert [one.version for one in await world.all(start="beginning")] == [100]


async def test_a_reader_that_is_overtaken_by_trimming_is_told(world: World, clock: Clock) -> None:
    await world.append(*(noted(n) for n in range(10)))
    state = await world.log.state()
    positions = await reading.resolve(world.database, state, "beginning")
    await clock.advance(9 * DAY)
    await world.log.trim()
    # Its positions were good when it looked; the read itself refuses, trimmed or dropped.
    for _ in range(2):
        with pytest.raises(FeedExpired):
            await reading.read(world.database, state.incarnation, positions)
        await clock.advance(61)
        await world.log.trim()


async def test_a_quiet_log_can_be_read_from_now_after_all_was_trimmed(
    world: World, clock: Clock
) -> None:
    await world.append(noted(1))
    await clock.advance(9 * DAY)
    await trim(world, clock)
    after = await world.end()
    assert await world.all() == []
    await world.append(noted(2))
    assert [one.version for one in await world.all(after)] == [2]


async def test_a_day_is_dropped_only_after_statements_that_found_it_have_ended(
    world: World, clock: Clock
) -> None:
    await world.append(noted(1))
    oldest = (await world.partitions())[0]
    await clock.advance(9 * DAY)
    await world.log.trim()
    assert await world.log.trim() == 0
    assert oldest in await world.partitions()
    await clock.advance(61)
    assert await world.log.trim() == 1


async def test_dropping_gives_up_while_somebody_reads(world: World, clock: Clock) -> None:
    await world.append(noted(1))
    await clock.advance(9 * DAY)
    await world.log.trim()
    await clock.advance(61)
    async with world.database.transaction() as tx:
        await tx.fetch("select from relevo.event")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            async with world.database.transaction() as other:
                await other.fetchval("select relevo.drop_trimmed_events()")
        await world.append(noted(2))
    assert await world.log.trim() == 1


async def test_events_are_kept_as_long_as_asked(world: World, clock: Clock) -> None:
    await world.log.keep(timedelta(days=30))
    assert (await world.log.state()).kept == timedelta(days=30)
    await world.append(noted(1))
    await clock.advance(20 * DAY)
    assert await trim(world, clock) == 0
    assert len(await world.all()) == 1
    with pytest.raises(InvalidValue, match="above 0"):
        await world.log.keep(timedelta(0))
