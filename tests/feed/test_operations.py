"""What operators do with units: pause, rewind, snapshots, exports, cutting, repair, trimming."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import (
    Conflict,
    ContainerRecreated,
    InvalidValue,
    LeaseCoverage,
    LeaseLost,
    NotFound,
)
from relevo.feed.operating import unit
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import worker
from relevo.feed.reading.pull import Reader
from relevo.feed.reading.tokens import TokenPlace
from relevo.store.ranges import Interval, Range, RangeMap
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.feed.operating.operations import UnitState
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Wakeups

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


def handle(kitchen: Kitchen, wakeups: Wakeups, name: str = "kitchen") -> UnitHandle:
    return UnitHandle(kitchen.database, wakeups, "orders", name, "leases")


def tiles(state: UnitState) -> bool:
    unit.check_coverage([one.interval for one in state.leases])
    return True


async def test_nothing_runs_after_pause_returned_until_resume(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # U6
    running, gate = 0, asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        nonlocal running
        running += 1
        await gate.wait()
        await kitchen.cook(changes)
        running -= 1

    await kitchen.serve(handler=slow)
    await kitchen.serve("b", handler=slow)
    await kitchen.write(*range(20))
    await kitchen.until(lambda: running > 0, "handlers run")
    orders = handle(kitchen, wakeups)
    pausing = asyncio.create_task(orders.pause())
    while (await orders.state()).state != "pausing":
        await asyncio.sleep(0)
    assert not pausing.done()
    gate.set()
    await pausing
    assert running == 0
    state = await orders.state()
    assert state.state == "paused"
    assert not any(one.running or one.owner for one in state.leases)
    before = list(kitchen.delivered)
    await kitchen.write(*range(100, 120))
    await kitchen.serve("late", handler=slow)  # a pause survives restarts
    assert kitchen.delivered == before
    await orders.resume()
    await kitchen.until_delivered(*range(20), *range(100, 120))
    assert len(kitchen.delivered) == 40  # the batch under way was finished and checkpointed


async def test_single_leases_are_paused_and_the_others_go_on(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    resting = (await orders.state()).leases[0]
    await orders.pause([resting.token])
    await kitchen.write(*range(50))
    ranges = await kitchen.orders.ranges()
    rows = await kitchen.database.fetch("select id, epk from relevo.item")
    here = {int(row["id"]) for row in rows if row["epk"] in resting.interval}
    assert here
    assert len(ranges.open) == 4
    await kitchen.until_delivered(*(set(range(50)) - here))
    assert not here & set(map(int, kitchen.delivered))
    await orders.resume([resting.token])
    await kitchen.until_delivered(*range(50))
    with pytest.raises(NotFound):
        await orders.pause(["no-such"])


async def test_pausing_a_unit_of_dead_hosts_returns(kitchen: Kitchen, wakeups: Wakeups) -> None:
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    await kitchen.hosts["a"].aclose()
    await kitchen.database.write(
        "insert into relevo.host (incarnation, name, lease_until, started_at, version) values"
        " (gen_random_uuid(), 'dead', relevo.now(), relevo.now(), '0')"
    )
    await kitchen.database.write(
        "update relevo.lease l set owner = h.incarnation, epoch = l.epoch + 1, free_since = null"
        " from relevo.host h where h.name = 'dead'"
    )
    await orders.pause()
    assert (await orders.state()).state == "paused"


async def test_a_rewound_unit_delivers_what_a_new_one_would(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # U7, L3
    await kitchen.serve(start="beginning")
    await kitchen.write(*range(30))
    await kitchen.until_delivered(*range(30))
    orders = handle(kitchen, wakeups)
    with pytest.raises(Conflict, match="pause"):
        await orders.rewind("beginning")
    await orders.pause()
    before = await orders.state()
    await orders.rewind("beginning")
    after = await orders.state()
    assert after.generation == before.generation + 1
    assert [one.epoch for one in after.leases] == [one.epoch + 1 for one in before.leases]
    assert all(set(one.positions.values()) == {0} for one in after.leases)
    kitchen.delivered.clear()
    await orders.resume()
    await kitchen.until_delivered(*range(30))
    assert len(kitchen.delivered) == 30


async def test_a_batch_that_runs_during_a_forced_rewind_cannot_move_the_position(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # L2, L3
    await kitchen.write(*range(10))
    first, lost = asyncio.Event(), asyncio.Event()
    orders = handle(kitchen, wakeups)

    async def rewound_meanwhile(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if not first.is_set():
            first.set()
            try:
                await orders.rewind("beginning", force=True)
                await ctx.confirm()
            except (LeaseLost, asyncio.CancelledError):
                lost.set()
                raise
        await kitchen.cook(changes)

    await kitchen.serve(handler=rewound_meanwhile, start="beginning")
    await kitchen.until_delivered(*range(10))
    assert lost.is_set()
    assert (await orders.state()).generation == 2


async def test_failures_are_forgotten_and_tokens_limit_a_rewind(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve()
    await kitchen.write(*range(30))
    await kitchen.until_delivered(*range(30))
    orders = handle(kitchen, wakeups)
    await orders.pause()
    await kitchen.database.write("update relevo.feed_lease set attempts = 7, failing = 'x'")
    before = (await orders.state()).leases
    await orders.rewind("beginning", [before[0].token])
    after = (await orders.state()).leases
    assert [one.attempts for one in after] == [0, 7, 7, 7]
    assert [one.positions for one in after[1:]] == [one.positions for one in before[1:]]
    assert set(after[0].positions.values()) == {0}


async def test_the_other_unit_does_not_notice(kitchen: Kitchen, wakeups: Wakeups) -> None:  # U1
    other: list[str] = []
    await kitchen.serve()
    await kitchen.serve("b", lambda changes: other.extend(c.id for c in changes), name="bar")
    orders, bar = handle(kitchen, wakeups), handle(kitchen, wakeups, "bar")
    await kitchen.write(*range(20))
    await kitchen.until(lambda: len(other) == 20, "the other unit saw all")
    before = await bar.state()
    await orders.pause()
    await orders.rewind("beginning")
    await kitchen.write(*range(100, 120))
    await kitchen.until(lambda: len(other) == 40, "the other unit goes on")
    after = await bar.state()
    assert (after.state, after.generation) == ("running", 1)
    assert [one.epoch for one in after.leases] == [one.epoch for one in before.leases]


async def test_a_position_in_ranges_a_host_has_not_seen_yet_is_gone_on_from(
    kitchen: Kitchen, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:  # F9, 14.1
    monkeypatch.setattr(worker, "LOOK_SECONDS", 3600.0)  # what was seen once will do
    await kitchen.write(*range(10))
    await kitchen.serve(start="beginning", poll_interval=3600.0)
    orders = handle(kitchen, wakeups)
    await kitchen.until_delivered(*range(10))
    await orders.pause()
    await orders.snapshot("tuesday")
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    await orders.rewind("tuesday")  # the positions are those of the new ranges
    await orders.resume()
    await kitchen.write(*range(10, 20))
    await kitchen.until_delivered(*range(10, 20))
    assert sorted(map(int, kitchen.delivered)) == list(range(20))


async def test_snapshots_are_kept_and_gone_back_to(kitchen: Kitchen, wakeups: Wakeups) -> None:
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    await kitchen.write(*range(10))
    await kitchen.until_delivered(*range(10))
    await orders.pause()
    await orders.snapshot("tuesday")
    await orders.resume()
    await kitchen.write(*range(10, 20))
    await kitchen.until_delivered(*range(10, 20))
    assert [one.name for one in await orders.snapshots()] == ["tuesday"]
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)  # positions stay valid over splits, F9
    await orders.pause()
    await orders.rewind("tuesday")
    kitchen.delivered.clear()
    await orders.resume()
    await kitchen.until_delivered(*range(10, 20))
    assert len(kitchen.delivered) == 10
    with pytest.raises(NotFound, match="neither a snapshot"):
        await orders.rewind("wednesday", force=True)
    with pytest.raises(InvalidValue):
        await orders.snapshot("now")


async def test_positions_travel_to_another_unit_with_other_leases(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve(leases=16)
    orders = handle(kitchen, wakeups)
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await orders.pause()
    text = await orders.export()
    await kitchen.write(*range(100, 110))
    seen: list[str] = []
    await kitchen.serve("b", lambda changes: seen.extend(c.id for c in changes), name="bar")
    bar = handle(kitchen, wakeups, "bar")
    await bar.pause()
    await bar.import_(text)
    await bar.resume()
    wanted = {str(n) for n in range(100, 110)}
    await kitchen.until(lambda: wanted <= set(seen), "the imported unit goes on there")
    with pytest.raises(InvalidValue):
        await bar.import_("{}")
    with pytest.raises(ContainerRecreated):
        await bar.import_(text.replace('"incarnation":"', '"incarnation":"0'))


async def test_positions_become_pull_tokens_and_tokens_positions(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await orders.pause()
    await kitchen.write(*range(100, 130))
    pulled: list[str] = []
    for token in (await orders.tokens()).values():
        reader = await Reader.open(kitchen.database, wakeups, "orders", continuation=token)
        async for page in reader.follow():
            pulled += [change.id for change in page.changes]
    assert sorted(pulled) == sorted(str(n) for n in range(100, 130))
    whole = await Reader.open(kitchen.database, wakeups, "orders")
    async for _ in whole.follow():
        pass
    await orders.rewind(whole.continuation)
    await orders.resume()
    await kitchen.write(200)
    await kitchen.until_delivered(200)
    assert len(kitchen.delivered) == 21


async def test_an_explicit_position_is_checked(kitchen: Kitchen, wakeups: Wakeups) -> None:
    await kitchen.serve()
    await kitchen.write(*range(10))
    await kitchen.until_delivered(*range(10))
    orders = handle(kitchen, wakeups)
    await orders.pause()
    state = await orders.state()
    positions = {r: lsn for one in state.leases for r, lsn in one.positions.items()}
    await orders.rewind(dict.fromkeys(positions, 0))
    await orders.rewind(positions)
    assert [one.positions for one in (await orders.state()).leases] == [
        one.positions for one in state.leases
    ]
    with pytest.raises(InvalidValue, match="does not cover"):
        await orders.rewind({min(positions): 0})
    with pytest.raises(Conflict, match="ahead"):
        await orders.rewind(dict.fromkeys(positions, 10**12))
    with pytest.raises(NotFound, match="no range"):
        await orders.rewind({10**6: 0})


async def test_leases_are_cut_finer_and_nothing_is_lost_or_repeated(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # L4
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    with pytest.raises(Conflict):
        await orders.split_leases(10)
    await orders.pause()
    await orders.split_leases(10)
    state = await orders.state()
    assert tiles(state)
    assert len(state.leases) == 16
    assert state.state == "paused"
    await orders.resume()
    await kitchen.write(*range(100, 140))
    await kitchen.until_delivered(*range(100, 140))
    assert len(kitchen.delivered) == 60
    await orders.split_leases(32, force=True)
    await kitchen.write(*range(200, 240))
    await kitchen.until_delivered(*range(200, 240))
    assert tiles(await orders.state())


async def test_a_lease_moves_to_a_named_host(kitchen: Kitchen, wakeups: Wakeups) -> None:
    first = await kitchen.serve()
    await kitchen.until(lambda: len(first.leases) == 4, "one host owns all")
    second = await kitchen.serve("b")
    await kitchen.until(lambda: len(second.leases) == 2, "shared")
    orders = handle(kitchen, wakeups)
    token = first.leases[0].name
    await orders.move(token, "b")
    await kitchen.until(lambda: token in [one.name for one in second.leases], "it moved")


async def test_a_gap_is_refused_and_repaired_from_where_the_operator_says(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:  # L4
    await kitchen.serve()
    await kitchen.write(*range(40))
    await kitchen.until_delivered(*range(40))
    await kitchen.hosts["a"].aclose()
    orders = handle(kitchen, wakeups)
    gone = (await orders.state()).leases[1]
    await kitchen.database.write("delete from relevo.lease where id = $1", gone.id)
    with pytest.raises(LeaseCoverage, match="repair"):
        await kitchen.serve("b")
    assert await orders.repair("beginning") == [gone.token]
    assert await orders.repair("beginning") == []
    kitchen.delivered.clear()
    await kitchen.serve("c")
    rows = await kitchen.database.fetch("select id, epk from relevo.item")
    here = sorted(row["id"] for row in rows if row["epk"] in gone.interval)
    await kitchen.until_delivered(*map(int, here))
    assert sorted(kitchen.delivered) == here


async def test_a_unit_that_is_served_cannot_be_deleted_and_one_that_is_gone_begins_anew(
    kitchen: Kitchen, wakeups: Wakeups
) -> None:
    await kitchen.serve()
    orders = handle(kitchen, wakeups)
    with pytest.raises(Conflict, match="stop"):
        await orders.delete()
    await kitchen.hosts["a"].aclose()
    await kitchen.write(*range(5))
    await orders.delete()
    with pytest.raises(NotFound):
        await orders.state()
    await kitchen.serve("b", start="beginning")
    await kitchen.until_delivered(*range(5))


def test_places_finer_than_a_lease_count_by_the_one_furthest_back() -> None:
    ranges = RangeMap(
        [Range(id=1, interval=Interval("", "20")), Range(id=2, interval=Interval("20", "FF"))]
    )
    places = [
        TokenPlace(1, "", "10", 7),
        TokenPlace(1, "10", "20", 5),
        TokenPlace(2, "20", "FF", 9),
    ]
    assert unit.positions_in(ranges, Interval("", "20"), places) == {1: 5}
    assert unit.positions_in(ranges, Interval("05", "08"), places) == {1: 7}
    assert unit.positions_in(ranges, Interval(), places) == {1: 5, 2: 9}
    with pytest.raises(InvalidValue, match="'10' to '20'"):
        unit.positions_in(ranges, Interval("", "20"), places[:1])
