"""Real processes that make one unit at the same time, die in the middle, or share a name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo import App, settings
from relevo.feed.operating.unit import check_coverage
from relevo.store.ranges import Interval
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.feed import FeedContainer
    from relevo.kernel.postgres import Database
    from relevo.testing.cluster import Node

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 3}
LEASES = """
select f.epk_min, f.epk_max, l.position, f.xmin::text as made_by, u.xmin::text as unit_made_by
from relevo.feed_lease f join relevo.lease l on l.id = f.lease_id
join relevo.feed_unit u on u.unit_id = l.unit_id
"""


class Site:
    """A container with some items, and a cluster of hosts over it."""

    def __init__(
        self, database: Database, orders: FeedContainer[dict[str, Any]], cluster: Cluster
    ) -> None:
        self.database, self.orders, self.cluster = database, orders, cluster
        self._written = 0

    async def write(self, count: int = 20) -> None:
        for number in range(self._written, self._written + count):
            await self.orders.upsert({"id": str(number), "city": f"city {number}"})
        self._written += count

    async def start(self, *names: str) -> list[Node]:
        """Start processes side by side, without waiting for them."""
        return [await self.cluster.start(name, wait=False) for name in names]

    async def until_ready(self, nodes: list[Node]) -> None:
        for node in nodes:
            await self.cluster.until(
                lambda node=node: bool(node.records("ready")),  # type: ignore[misc]
                f"{node.name} is ready",
                node=node,
            )


@pytest.fixture
async def site(database: Database, relevo_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    told = settings.load({"database_url": relevo_url, "pool_size": 3}, environ={})
    async with App(settings=told) as app:
        orders = app.container("orders", "/city", ranges=4)
        await orders.describe()
        program = "tests.feed.joining:join"
        async with Cluster(relevo_url, program, tmp_path, settings=QUICK) as cluster:
            yield Site(database, orders, cluster)


async def test_bootstrap_by_many_hosts_that_are_killed_makes_one_set_of_leases(
    site: Site,
) -> None:  # L8
    await site.write()
    board = site.cluster.faults
    board.arm("mid_bootstrap", "kill")  # the first time in each process
    doomed = await site.start("doomed1", "doomed2", "doomed3")
    await board.reached("mid_bootstrap", count=3, timeout=90)  # one after the other gets the lock
    for node in doomed:
        node.process.wait(timeout=30)
    assert await site.database.fetchval("select count(*) from relevo.feed_unit") == 0
    assert await site.database.fetchval("select count(*) from relevo.feed_lease") == 0

    # Who is left finds one of them with the lock, dying; and all of them ask at the same time.
    doomed = await site.start("doomed4")
    await board.reached("mid_bootstrap", count=4, timeout=90)
    board.disarm("mid_bootstrap")
    nodes = await site.start("host1", "host2", "host3", "host4")
    await site.until_ready(nodes)

    rows = await site.database.fetch(LEASES)
    assert len(rows) == 8
    check_coverage([Interval(row["epk_min"], row["epk_max"]) for row in rows])  # L4
    heads = {
        row["range_id"]: row["head"]
        for row in await site.database.fetch(
            "select range_id, max(lsn) as head from relevo.item group by range_id"
        )
    }
    begun = await site.database.fetchval("select start ->> 'kind' from relevo.feed_unit")
    assert begun in ("now", "beginning"), begun
    if begun == "beginning":
        delivered: set[str] = set()

        def all_delivered() -> bool:
            delivered.update(c for r in site.cluster.records("call") for c in r["changes"])
            return len(delivered) == 20

        await site.cluster.until(all_delivered, "all leases began at the beginning")
    else:
        for row in rows:
            for range_id, lsn in msgspec.json.decode(row["position"]).items():
                assert lsn == heads[int(range_id)]
        assert not site.cluster.records("call")


async def test_all_leases_are_made_by_the_transaction_that_makes_the_unit(site: Site) -> None:
    nodes = await site.start("host2", "host4", "host6")  # L8; nothing is written: no checkpoint
    await site.until_ready(nodes)
    rows = await site.database.fetch(LEASES)
    assert len(rows) == 8
    assert len({row["made_by"] for row in rows} | {row["unit_made_by"] for row in rows}) == 1


async def test_of_two_processes_with_one_name_only_one_delivers_within_a_heartbeat(
    site: Site,
) -> None:  # L9
    (first,) = await site.start("host2")
    await site.until_ready([first])
    writing = asyncio.create_task(_write_on(site))
    try:
        await site.cluster.until(lambda: len(first.records("call")) > 5, "the first delivers")
        (second,) = await site.start("host2")
        await site.until_ready([second])
        assert await asyncio.to_thread(first.process.wait, 30) == 9
        since = len(second.records("call"))
        await site.cluster.until(
            lambda: len(second.records("call")) > since + 20, "the second delivers everything"
        )
    finally:
        writing.cancel()
    assert first.records("superseded")
    ready = second.records("ready")[0]["at"]
    late = [record for record in first.records("call") if record["at"] > ready]
    # No renewal succeeded after the second had registered, so these are within one heartbeat.
    assert len({record["beats"] for record in late}) <= 1
    epochs = {record["lease"]: record["epoch"] for record in first.records("call")}
    for record in second.records("call"):
        assert record["epoch"] > epochs.get(record["lease"], 0)  # L1: the first is fenced


async def _write_on(site: Site) -> None:
    while True:
        await site.write(5)
