"""Real host processes that are killed, frozen and cut off while writers write: nothing is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.kernel.leases.hosts import instant
from relevo.testing import trace
from relevo.testing.cluster import Cluster
from relevo.testing.proxy import Proxy
from tests.feed import ledger
from tests.feed.programs import LEASES_VARIABLE, MODE_VARIABLE
from tests.feed.writers import Writers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo.feed import FeedContainer
    from relevo.feed.model import Mode
    from relevo.kernel.postgres import Database
    from relevo.testing.cluster import Node
    from tests.feed.ledger import Delivered

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 4}
LEDGER = "tests.feed.programs:ledger"
EFFECTS = "tests.feed.programs:effects"
EFFECT_TABLE = """create table effect (seq bigint generated always as identity primary key,
                                       change_id text, id text, version bigint)"""


class Site:
    """A container, writers on it, and a cluster of hosts in trouble."""

    def __init__(self, database: Database, cluster: Cluster, seed: int) -> None:
        self.database = database
        self.cluster = cluster
        self.troubles: list[ledger.Trouble] = []
        self.lives: list[Node] = []
        self._rng = random.Random(seed)
        self._hurt: dict[str, tuple[int, ledger.Trouble]] = {}
        self.writers: Writers
        self.line: Proxy

    @property
    def orders(self) -> FeedContainer[Any]:
        return self.writers.containers[0]

    async def start(self, name: str) -> None:
        self.lives.append(await self.cluster.start(name))

    async def writes_pass(self, count: int) -> None:
        """Let so many writes be acknowledged: time without a clock."""
        target = len(self.writers.acknowledged) + count
        await self.cluster.until(
            lambda: len(self.writers.acknowledged) >= target, f"{count} more writes"
        )

    async def chaos(self, hosts: int, faults: int) -> None:
        """Hurt hosts at random, several at a time; then end every trouble."""
        names = [f"host{n}" for n in range(hosts)]
        for name in names:
            await self.start(name)
        for _ in range(faults):
            whole = [name for name in names if name not in self._hurt]
            if whole:
                await self._hurt_one(self._rng.choice(whole))
            await self.writes_pass(self._rng.randrange(50, 350))
            self._heal_due()
        for name in list(self._hurt):
            self._heal(name)

    async def _hurt_one(self, name: str) -> None:
        node = self.cluster.nodes[name]
        trouble = ledger.Trouble(name, instant())
        match self._rng.choice(["kill", "kill", "freeze", "freeze", "partition", "deaf", "reset"]):
            case "kill":
                node.kill()
                trouble.ended, trouble.killed = instant(), True
                await self.start(name)
            case "reset":
                node.proxy.reset()
                self.line.reset()
                trouble.ended = instant()
            case "freeze":
                node.freeze()
            case "partition":
                node.partition()
            case "deaf":
                node.proxy.cut_downstream()
        self.troubles.append(trouble)
        if trouble.ended > instant():
            self._hurt[name] = (self._rng.randrange(1, 7), trouble)

    def _heal_due(self) -> None:
        for name, (left, trouble) in list(self._hurt.items()):
            self._hurt[name] = (left - 1, trouble)
            if left == 1:
                self._heal(name)

    def _heal(self, name: str) -> None:
        _, trouble = self._hurt.pop(name)
        node = self.cluster.nodes[name]
        node.thaw()
        node.heal()
        trouble.ended = instant()

    def calls(self) -> list[ledger.Call]:
        return ledger.calls([node.records() for node in self.lives], self.troubles)


@pytest.fixture
async def site(
    database: Database, relevo_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    program, mode, seed = request.param
    await trace.install(database)
    await database.run(lambda tx: tx.execute(ledger.POSITIONS))
    await database.run(lambda tx: tx.execute(EFFECT_TABLE))
    async with AsyncExitStack() as stack:
        line = stack.enter_context(Proxy.to(relevo_url))
        containers = []
        for url in (relevo_url, line.url(relevo_url)):
            told = settings.load({"database_url": url, "pool_size": 4}, environ={})
            app = await stack.enter_async_context(App(settings=told))
            containers.append(app.container("orders", "/key", ranges=4, versions=timedelta(days=1)))
        await containers[0].describe()
        environment = {MODE_VARIABLE: mode, LEASES_VARIABLE: "8"}
        cluster = await stack.enter_async_context(
            Cluster(relevo_url, program, tmp_path, settings=QUICK, environment=environment)
        )
        site = Site(database, cluster, seed)
        site.writers, site.line = Writers(containers, seed), line
        async with asyncio.TaskGroup() as group:
            group.create_task(site.writers.run())
            try:
                yield site
            finally:
                site.writers.stop()


def of(program: str, mode: str, seed: int = 20261115) -> Any:
    return pytest.param((program, mode, seed), id=f"{mode}-{seed}")


def seeds(program: str, *modes: str) -> list[Any]:
    return [of(program, mode, seed) for mode in modes for seed in range(3)]


async def _nothing_is_lost(site: Site, hosts: int, faults: int, mode: Mode) -> None:
    await site.chaos(hosts, faults)
    await site.writes_pass(50)  # F6: the feed goes on
    site.writers.stop()
    truth = await ledger.committed(site.orders, mode)

    def missing() -> set[Delivered]:
        return truth - {c for call in site.calls() if call.returned for c in call.changes}

    await site.cluster.until(
        lambda: not missing(), lambda: f"delivery of {sorted(missing())[:20]}", timeout=90
    )
    history = ledger.History(
        mode=mode, truth=truth, versions=await ledger.committed(site.orders, "all_versions"),
        acknowledged=site.writers.acknowledged, calls=site.calls(), troubles=site.troubles,
        owners=await trace.owner_changes(site.database),
    )  # fmt: skip
    ledger.check(history)  # F3, F4, F5, F6, B4, L1, P1, P2, P4
    await ledger.check_positions(site.database)  # L3
    epochs = [change.epoch for change in history.owners]
    assert max(epochs) > 2, "no lease moved; this would prove nothing"


async def _effects_happen_once(site: Site, hosts: int, faults: int) -> None:
    await site.chaos(hosts, faults)
    await site.writes_pass(50)
    site.writers.stop()
    truth = await ledger.committed(site.orders, "all_versions")

    async def all_applied() -> bool:
        count: int = await site.database.fetchval("select count(*) from effect")
        return count >= len(truth)

    await site.cluster.until(all_applied, "every change is applied", timeout=90)
    rows = await site.database.fetch("select change_id, id, version from effect order by seq")
    ledger.check_effects([(r["change_id"], r["id"], r["version"]) for r in rows], truth)  # P5
    await ledger.check_positions(site.database)  # L3


@pytest.mark.parametrize("site", [of(LEDGER, "latest")], indirect=True)
async def test_no_change_is_lost_when_hosts_are_killed_frozen_and_cut_off(
    site: Site, request: pytest.FixtureRequest
) -> None:  # F1, P1, P2
    mode = request.node.callspec.params["site"][1]
    await _nothing_is_lost(site, hosts=3, faults=6, mode=mode)


@pytest.mark.parametrize("site", [of(EFFECTS, "all_versions")], indirect=True)
async def test_effects_happen_exactly_once_whatever_happens_to_hosts(site: Site) -> None:  # P5
    await _effects_happen_once(site, hosts=3, faults=6)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("site", seeds(LEDGER, "latest", "all_versions"), indirect=True)
async def test_no_change_is_lost_in_many_faults(
    site: Site, request: pytest.FixtureRequest
) -> None:  # F1, P1, P2
    mode = request.node.callspec.params["site"][1]
    await _nothing_is_lost(site, hosts=8, faults=60, mode=mode)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("site", seeds(EFFECTS, "all_versions"), indirect=True)
async def test_effects_happen_exactly_once_in_many_faults(site: Site) -> None:  # P5
    await _effects_happen_once(site, hosts=8, faults=60)
