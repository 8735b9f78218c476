"""Leases follow splits, bootstrap is all or nothing; with real processes killed in the middle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.feed.operating import unit
from relevo.feed.operating.operations import UnitHandle
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from relevo.feed.reading import log as reading
from relevo.testing.cluster import Cluster
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo import App
    from relevo.feed.model import Change
    from relevo.feed.operating.operations import UnitState
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.testing.recorder import Recorder

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 4}


async def serve(app: App, record: Recorder) -> None:
    """What nodes run: deliver and say so."""

    async def cook(changes: list[Change[Any]]) -> None:
        for change in changes:
            record("delivered", id=change.id)

    processor = Processor("orders", "kitchen", cook, start="beginning", poll_interval=0.1)
    await processors.start(processor, app.database, app.wakeups, app.leases, app.supervisor)


class Split:
    """A unit that is looked at while its container is split."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self.database = database
        self.handle = UnitHandle(database, wakeups, "orders", "kitchen", "leases")

    async def state(self) -> UnitState:
        state = await self.handle.state()
        unit.check_coverage([one.interval for one in state.leases])  # L4, at every look
        return state

    async def followed(self) -> bool:
        source = await reading.look(self.database, "orders")
        leases = (await self.state()).leases
        return all(len(source.ranges.over(one.interval)) == 1 for one in leases)

    async def until_followed(self) -> None:
        async with asyncio.timeout(30):
            while not await self.followed():
                await asyncio.sleep(0.01)


@pytest.fixture
def split(database: Database, wakeups: Wakeups) -> Split:
    return Split(database, wakeups)


async def test_leases_follow_splits_while_writers_and_readers_run(
    kitchen: Kitchen, split: Split
) -> None:  # F9, L4, P2
    stop = asyncio.Event()
    released: list[str] = []
    processor = await kitchen.serve()
    processor.on_released(lambda token, reason: released.append(reason))
    await kitchen.serve("b")

    async def write() -> int:
        n = 0
        while not stop.is_set():
            await kitchen.write(*range(n, n + 20))
            n += 20
        return n

    writing = asyncio.create_task(write())
    for _ in range(2):
        for one in list((await kitchen.orders.ranges()).open):
            await kitchen.orders.split(one.id)
        await split.until_followed()
    stop.set()
    written = await writing
    await kitchen.until_delivered(*range(written))
    assert len(kitchen.delivered) == written  # cutting repeats nothing
    assert len((await split.state()).leases) == 16
    assert "split" in released


async def test_whoever_acquires_a_lease_of_a_split_range_cuts_it_first(
    kitchen: Kitchen, split: Split
) -> None:  # F9, L4
    await kitchen.serve(start="beginning")
    await kitchen.write(*range(20))
    await kitchen.until_delivered(*range(20))
    await kitchen.hosts["a"].aclose()
    positions = {one.token: one.positions for one in (await split.state()).leases}
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    await kitchen.write(*range(100, 120))
    assert {one.token: one.positions for one in (await split.state()).leases} == positions
    await kitchen.serve("b")
    await split.until_followed()
    await kitchen.until_delivered(*range(100, 120))
    assert len(kitchen.delivered) == 40
    state = await split.state()
    assert len(state.leases) == 8
    assert not {one.token for one in state.leases} & set(positions)


async def test_a_paused_lease_is_not_cut(kitchen: Kitchen, split: Split) -> None:  # U6
    await kitchen.serve()
    await split.handle.pause()
    before = [one.token for one in (await split.state()).leases]
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    await kitchen.write(*range(20))
    assert [one.token for one in (await split.state()).leases] == before
    await split.handle.resume()
    await split.until_followed()
    await kitchen.until_delivered(*range(20))
    assert len(kitchen.delivered) == 20


async def test_an_unconfirmed_batch_keeps_the_lease_whole(kitchen: Kitchen, split: Split) -> None:
    contexts: list[ChangeContext] = []

    async def later(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        contexts.append(ctx)
        await kitchen.cook(changes)

    await kitchen.serve(handler=later, checkpoint="manual")
    await kitchen.orders.create({"id": "1", "city": "x"})
    await kitchen.until_delivered(1)
    token = contexts[0].lease_token
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    assert token in [one.token for one in (await split.state()).leases]
    await contexts[0].confirm()
    await kitchen.orders.create({"id": "2", "city": "y"})
    await split.until_followed()
    assert token not in [one.token for one in (await split.state()).leases]


@pytest.fixture
async def cluster(relevo_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    program = "tests.feed.test_lease_splitting:serve"
    async with Cluster(relevo_url, program, tmp_path, settings=QUICK) as cluster:
        yield cluster


async def test_a_host_killed_in_the_middle_of_a_cut_leaves_the_lease_or_all_its_children(
    cluster: Cluster, kitchen: Kitchen, split: Split
) -> None:  # L4, F9, P1
    await cluster.start("a")
    await kitchen.write(*range(20))

    def delivered() -> set[str]:
        return {record["id"] for record in cluster.records("delivered")}

    await cluster.until(lambda: len(delivered()) == 20, "the first are delivered")
    cluster.faults.arm("mid_split", "kill", process="a")
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    await cluster.faults.reached("mid_split")
    await kitchen.write(*range(100, 120))
    assert len((await split.state()).leases) == 4  # nothing of the cut was committed
    await cluster.start("b")
    await cluster.until(split.followed, "the next owner cuts")
    await cluster.until(lambda: len(delivered()) == 40, "nothing is lost")
    assert len((await split.state()).leases) == 8


async def test_bootstrap_by_many_hosts_killed_in_the_middle_gives_one_set_of_leases(
    cluster: Cluster, kitchen: Kitchen, split: Split
) -> None:  # L8
    await kitchen.write(*range(20))
    cluster.faults.arm("mid_bootstrap", "kill", process="a")
    await cluster.start("a", wait=False)
    await cluster.faults.reached("mid_bootstrap")
    assert await kitchen.database.fetchval("select count(*) from relevo.feed_unit") == 0
    assert await kitchen.database.fetchval(
        "select count(*) from relevo.lease l join relevo.unit u on u.id = l.unit_id"
        " where u.kind = 'feed'"
    ) == 0  # fmt: skip
    await asyncio.gather(*(cluster.start(name) for name in ("b", "c", "d")))
    state = await split.state()
    assert len(state.leases) == 4
    assert state.generation == 1
    await cluster.until(
        lambda: len({one["id"] for one in cluster.records("delivered")}) == 20,
        "the one start position is that of the beginning",
    )
