"""Hosts that come and go in the ordinary way: resuming, idling, scaling, and costing nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.kernel.leases import Directory
from relevo.kernel.postgres import Wakeups
from relevo.testing.cluster import Cluster
from tests.feed.programs import LEASES_VARIABLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.feed import Change, FeedContainer
    from relevo.kernel.postgres import Database

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 4}
UNIT = "leases/orders/kitchen"


class Site:
    """A container that the test writes to and a cluster of hosts that process it."""

    def __init__(self, database: Database, cluster: Cluster, orders: FeedContainer[Any]) -> None:
        self.database = database
        self.cluster = cluster
        self.orders = orders
        self.written: set[str] = set()
        self._directory = Directory(database, Wakeups(database))

    async def write(self, count: int) -> None:
        first = len(self.written)
        ids = [str(n) for n in range(first, first + count)]
        done = await self.orders.bulk({"id": i, "key": f"k{i}", "version": 1} for i in ids)
        assert not done.failures
        self.written.update(ids)

    def delivered(self, host: str | None = None) -> Counter[str]:
        """How often each item was in a call."""
        return Counter(
            change[0]
            for record in self.cluster.records("call")
            if host is None or record["host"] == host
            for change in record["changes"]
        )

    async def until_delivered(self) -> None:
        await self.cluster.until(
            lambda: set(self.delivered()) >= self.written, "every item is delivered"
        )

    async def counts(self) -> dict[str | None, int]:
        found = await self._directory.leases(unit=UNIT, limit=1000)
        return Counter(lease.owner for lease in found)

    async def until_owned_by(self, *hosts: str) -> None:
        async def owned() -> bool:
            return set(await self.counts()) == set(hosts)

        await self.cluster.until(owned, f"leases owned by {hosts}")


@pytest.fixture
async def site(
    database: Database, relevo_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    environment = {LEASES_VARIABLE: str(getattr(request, "param", 8))}
    async with (
        App(settings=settings.load({"database_url": relevo_url}, environ={})) as app,
        Cluster(
            relevo_url, "tests.feed.programs:ledger", tmp_path, settings=QUICK,
            environment=environment,
        ) as cluster,
    ):  # fmt: skip
        orders = app.container("orders", "/key", ranges=2)
        await orders.describe()
        yield Site(database, cluster, orders)


async def test_short_lived_hosts_resume_where_the_last_one_stopped(
    relevo_url: str, app: App
) -> None:  # 9.7, B4: a container that is woken, works and sleeps
    orders = app.container("orders", "/key", ranges=4)
    await orders.describe()
    seen: Counter[str] = Counter()
    for turn in range(4):
        ids = [f"{turn}-{n}" for n in range(25)]
        await orders.bulk({"id": i, "key": i} for i in ids)
        told = settings.load({"database_url": relevo_url, **QUICK}, environ={})
        short = App(settings=told)
        drained = _note(short, seen, target=25 * (turn + 1))
        async with short.host(name=f"turn{turn}"):
            await drained.wait()
    assert len(seen) == 100
    assert set(seen.values()) == {1}


def _note(app: App, seen: Counter[str], target: int) -> Any:
    reached = asyncio.Event()

    @app.container("orders").on_changes("kitchen", start="beginning", max_items=7)
    async def note(changes: list[Change[Any]]) -> None:
        seen.update(change.id for change in changes)
        if len(seen) >= target:
            reached.set()

    return reached


@pytest.mark.parametrize("site", [2], indirect=True)
async def test_hosts_beyond_the_number_of_leases_idle_until_one_is_needed(
    site: Site,
) -> None:  # 13.3, B3
    for name in ("a", "b", "c"):
        await site.cluster.start(name)
    await site.cluster.until(lambda: _two_owners(site), "two hosts own one lease each")
    await site.write(200)
    await site.until_delivered()
    (idle,) = {"a", "b", "c"} - set(await site.counts())
    assert not site.delivered(idle)
    busy = next(name for name in ("a", "b", "c") if name != idle)
    site.cluster.nodes[busy].terminate()
    await site.until_owned_by(*({"a", "b", "c"} - {busy}))
    await site.write(200)
    await site.until_delivered()
    assert site.delivered(idle)


async def _two_owners(site: Site) -> bool:
    counts = await site.counts()
    return None not in counts and sorted(counts.values()) == [1, 1]


async def test_a_killed_hosts_changes_are_delivered_elsewhere(site: Site) -> None:  # B5, P1
    a = await site.cluster.start("a")
    await site.cluster.start("b")
    await site.until_owned_by("a", "b")
    await site.write(300)
    await site.cluster.until(lambda: bool(site.delivered("a")), "a works")
    a.kill()
    await site.write(300)
    await site.until_delivered()
    await site.until_owned_by("b")
    again = [item for item, times in site.delivered().items() if times > 1]
    assert len(again) <= 20 * 8  # at most what was under way: one batch per lease of the dead host


@pytest.mark.parametrize("site", [16], indirect=True)
async def test_scaling_up_and_down_delivers_nothing_twice(site: Site) -> None:  # B4, 13.4, 13.5
    await site.cluster.start("a")
    await site.write(100)
    for name in ("b", "c", "d"):
        await site.cluster.start(name)
        await site.write(100)
    await site.until_owned_by("a", "b", "c", "d")
    await site.write(500)
    for name in ("a", "c"):
        site.cluster.nodes[name].terminate()
        await site.write(100)
    await site.until_owned_by("b", "d")
    await site.write(100)
    await site.until_delivered()
    assert set(site.delivered().values()) == {1}
    assert all(site.cluster.nodes[name].process.wait(timeout=30) == 0 for name in ("a", "c"))


async def test_an_idle_unit_writes_nothing_but_heartbeats(site: Site) -> None:  # P12
    await site.database.run(lambda tx: tx.execute(_COUNT_WRITES))
    for name in ("a", "b"):
        await site.cluster.start(name)
    await site.until_owned_by("a", "b")
    await site.write(50)
    await site.until_delivered()

    async def heartbeats() -> int:
        return (await _writes(site.database)).get("host", 0)

    async def settled() -> bool:
        """Two heartbeats of each pass without any other write; then the unit is at rest."""
        await site.database.write("truncate written")
        await site.cluster.until(lambda: _at_least(heartbeats, 4), "heartbeats go on")
        return set(await _writes(site.database)) == {"host"}

    await site.cluster.until(settled, "the unit comes to rest")
    await site.database.write("truncate written")
    await site.cluster.until(lambda: _at_least(heartbeats, 16), "heartbeats go on")
    assert set(await _writes(site.database)) == {"host"}


async def _at_least(count: Any, wanted: int) -> bool:
    return bool(await count() >= wanted)


async def _writes(database: Database) -> dict[str, int]:
    rows = await database.fetch("select name, count(*) as n from written group by name")
    return {row["name"]: row["n"] for row in rows}


_COUNT_WRITES = """
create table public.written (name text);
create function count_write() returns trigger language plpgsql as $$
begin
  insert into public.written values (tg_table_name);
  return null;
end $$;
create trigger count_write after insert or update or delete on relevo.host
  for each row execute function count_write();
create trigger count_write after insert or update or delete on relevo.lease
  for each row execute function count_write();
create trigger count_write after insert or update or delete on relevo.feed_lease
  for each row execute function count_write();
create trigger count_write after insert or update or delete on relevo.unit
  for each row execute function count_write();
create trigger count_write after insert or update or delete on relevo.feed_unit
  for each row execute function count_write();
"""
