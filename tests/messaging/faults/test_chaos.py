"""SIGKILL of hosts, receivers, senders and the server under load: no accepted message is lost, none
is completed twice, and deliveries are counted."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest

from relevo import App, settings
from relevo.testing.cluster import Cluster
from tests.jobs.office import QUICK
from tests.kernel.postgres.servers import pgbouncer
from tests.messaging.faults import programs
from tests.messaging.faults.accounts import Ledger
from tests.support.servers import kill_server

pytestmark = pytest.mark.anyio
SETTINGS = {
    **QUICK, "lease_expiration": 2.0, "lease_renew": 0.4, "pool_size": 4, "drain_seconds": 0.2,
}  # fmt: skip
NAMES = ("host-a", "host-b", "receiver-a", "sender-a")


async def revive(cluster: Cluster, *names: str) -> None:
    """Start again what ended by itself, because the server was away when it started."""
    for name in names or NAMES:
        if cluster.nodes[name].process.poll() is not None:
            await cluster.start(name, wait=False)


async def storm(app: App, url: str, folder: Path, kills: int, *, server: bool = True) -> None:
    """Kill one process after the other, and every fifth time the server itself."""
    for statement in programs.TABLES.split(";"):
        await app.database.write(statement)
    await programs.Post(app).make()
    seed = random.randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    async with Cluster(
        url, "tests.messaging.faults.programs:depot", folder, settings=SETTINGS
    ) as cluster:
        ledger = Ledger(app.database, cluster)
        for name in NAMES:
            await cluster.start(name, wait=False)
        for turn in range(kills):
            wanted = await ledger.done() + dice.randrange(5, 40)

            async def more(wanted: int = wanted) -> bool:
                await revive(cluster)
                return await ledger.done() >= wanted

            await cluster.until(more, "there is load")
            if server and turn % 5 == 4:
                await kill_server(app.database)
            else:
                name = NAMES[turn % (4 + server)]
                cluster.nodes[name].kill()
                await cluster.start(name, wait=False)
        cluster.nodes["sender-a"].kill()

        async def drained() -> bool:
            await revive(cluster, *NAMES[:3])
            return await ledger.drained()

        await cluster.until(drained, "all that was sent is done", timeout=90)
        for name in NAMES[:3]:
            cluster.nodes[name].terminate()
        for node in cluster.nodes.values():
            await asyncio.to_thread(node.process.wait)
        accepted = await ledger.check()
    print(f"{kills} kills, {accepted} accepted, 0 lost")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [5, pytest.param(300, marks=pytest.mark.soak)])
async def test_no_kill_loses_or_doubles_a_message(
    kills: int, tmp_path: Path
) -> None:  # M27, M1, M2, M3, M4, M18, M26
    with tempfile.TemporaryDirectory(prefix="relevo-test-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"  # a server of its own, whose files are synced
        told = settings.load({"home": home, **SETTINGS}, environ={})
        async with App(settings=told) as app:
            await storm(app, app.database.endpoint.url, tmp_path, kills)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_kills_behind_pgbouncer(app: App, relevo_url: str, tmp_path: Path) -> None:  # M27
    with pgbouncer(relevo_url) as url:
        await storm(app, url, tmp_path, 20, server=False)
