"""Reading the log: from where, how far, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import BadContinuation, Conflict, FeedRegressed, InvalidValue
from relevo.kernel.events import EventLog, model, reading
from relevo.kernel.part import Connection
from tests.kernel.events.conftest import noted

if TYPE_CHECKING:
    from relevo.testing.clock import Clock
    from tests.kernel.events.conftest import World

pytestmark = pytest.mark.anyio


async def test_a_continuation_goes_on_where_the_page_ended(world: World) -> None:
    await world.append(*(noted(n, f"thing/{n}") for n in range(25)))
    first = await world.log.read(max_items=10)
    assert len(first.events) == 10
    assert not first.caught_up
    rest = await world.all(first.continuation)
    assert [one.version for one in (*first.events, *rest)] == list(range(25))
    assert await world.all(await world.end()) == []


async def test_start_now_shows_only_what_comes(world: World) -> None:
    await world.append(noted(1), noted(1, "thing/2"))
    after = await world.end()
    await world.append(noted(2))
    assert [one.version for one in await world.all(after)] == [2]


async def test_start_at_an_instant_shows_all_that_is_younger(world: World, clock: Clock) -> None:
    marks: list[datetime] = []
    for n in range(6):
        await world.append(noted(n), noted(n, "thing/2"))
        marks.append(await clock.now())
        await clock.advance(25)
    for n, mark in enumerate(marks):
        found = await world.all(start=mark)
        assert sorted(one.version for one in found) == sorted([*range(n + 1, 6)] * 2)
    with pytest.raises(InvalidValue, match="future"):
        await world.log.read(start=marks[-1] + timedelta(days=1))


async def test_bytes_bound_a_page_and_one_large_event_goes_alone(world: World) -> None:
    await world.append(*(noted(n, text="x" * 60_000) for n in range(100)))
    page = await world.log.read(max_items=100)
    assert 1 < len(page.events) < 100
    assert len(page.events) + len(await world.all(page.continuation, max_items=100)) == 100


async def test_a_waiting_reader_hears_of_a_commit(world: World) -> None:
    after = await world.end()
    waiting = asyncio.ensure_future(world.log.read(after, wait=60))
    while not world.log.wakeups.signals.get(model.TOPIC):
        await asyncio.sleep(0)
    await world.append(noted(1))
    world.log.sent()
    page = await waiting
    assert [one.version for one in page.events] == [1]


async def test_reading_walks_the_index_of_each_day_and_never_sorts_a_stripe(
    world: World, clock: Clock
) -> None:
    for _ in range(3):
        for _ in range(10):
            await world.append(*(noted(n, f"thing/{n}") for n in range(2_000)))
        await clock.advance(timedelta(days=1))
    await world.database.run(lambda tx: tx.execute("analyze relevo.event_batch"))
    ids = [one.id for one in (await world.log.state()).stripes]
    for some in (ids[:1], ids):
        async with world.database.transaction() as tx:
            await tx.execute("set local plan_cache_mode = force_generic_plan")
            for scan in ("bitmapscan", "seqscan"):  # which only small tables get
                await tx.execute(f"set local enable_{scan} = off")
            rows = await tx.fetch(f"explain {reading.SQL.read_events}", some, [0] * len(some), 100)
        plan = "\n".join(row[0] for row in rows)
        # Once for how far the page goes, once for its batches; the page and its stripes are sorted.
        assert plan.count("stripe_last_idx on event_") >= 6, plan
        assert plan.count("Sort  (") <= 4, plan


@pytest.mark.parametrize("token", ["", "x", "!!", "e30", "bnVsbA"])
async def test_a_damaged_continuation_is_refused(world: World, token: str) -> None:
    with pytest.raises(BadContinuation):
        await world.log.read(token)


async def test_a_foreign_continuation_is_refused(world: World) -> None:
    state = await world.log.state()
    positions = {one.id: 0 for one in state.stripes}
    foreign = model.encode(model.LogPlace("another", positions))
    with pytest.raises(BadContinuation, match="another database"):
        await world.log.read(foreign)
    partial = model.encode(model.LogPlace(state.incarnation, {1: 0}))
    with pytest.raises(BadContinuation, match="stripes"):
        await world.log.read(partial)
    ahead = dict.fromkeys(positions, state.last_lsn + 1)
    with pytest.raises(FeedRegressed):
        await world.log.read(model.encode(model.LogPlace(state.incarnation, ahead)))


@pytest.mark.parametrize("start", ["yesterday", datetime(2026, 1, 1), None, 5])
async def test_a_start_that_means_nothing_is_refused(world: World, start: Any) -> None:
    with pytest.raises(InvalidValue, match="start is"):
        await world.log.read(start=start)


async def test_a_log_that_is_not_connected_says_so() -> None:
    with pytest.raises(Conflict, match="not connected"):
        await EventLog(Connection()).read()
