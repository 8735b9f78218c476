"""Processes killed, frozen and cut off, and the server killed, under load: no accepted message is
lost, none is completed twice, and deliveries are counted."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.testing.cluster import Cluster
from relevo.testing.proxy import Proxy
from tests.jobs.office import QUICK
from tests.kernel.postgres.servers import pgbouncer
from tests.messaging.faults import programs
from tests.messaging.faults.accounts import Ledger
from tests.support.servers import kill_server

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio
SETTINGS = {
    **QUICK, "lease_expiration": 2.0, "lease_renew": 0.4, "pool_size": 4, "drain_seconds": 0.2,
}  # fmt: skip
NAMES = ("host-a", "host-b", "receiver-a", "sender-a")
LIVES = "select exists (select from relevo.host where name = $1 and ended_at is null)"


async def revive(cluster: Cluster, *names: str) -> None:
    """Start again what ended by itself, because the server was away when it started."""
    for name in names or NAMES:
        if cluster.nodes[name].process.poll() is not None:
            await cluster.start(name, wait=False)


async def kill(cluster: Cluster, name: str) -> None:
    """Kill a process, and start another in its place."""
    cluster.nodes[name].kill()
    await cluster.start(name, wait=False)


async def freeze(cluster: Cluster, name: str, app: App) -> None:
    """Stop a process until others have ended its host, and let it go on."""

    async def ended() -> bool:
        return not await app.database.fetchval(LIVES, name)

    cluster.nodes[name].freeze()
    try:
        await cluster.until(ended, f"the host of {name} is ended")
    finally:
        cluster.nodes[name].thaw()


async def storm(
    app: App,
    url: str,
    folder: Path,
    faults: int,
    *,
    kinds: Sequence[str] = ("kill",),
    between: Proxy | None = None,
) -> None:
    """Break one process after the other, each in every way; `between` stands before the server.

    Without it, every fifth fault kills the server itself.
    """
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
        for turn in range(faults):
            wanted = await ledger.done() + dice.randrange(5, 40)

            async def more(wanted: int = wanted) -> bool:
                await revive(cluster)
                return await ledger.done() >= wanted

            await cluster.until(more, "there is load")
            name, kind = NAMES[turn // len(kinds) % len(NAMES)], kinds[turn % len(kinds)]
            if between is None and turn % 5 == 4:
                await kill_server(app.database)
            elif kind == "freeze":
                await freeze(cluster, name, app)
            elif kind == "cut off":
                cluster.nodes[name].proxy.reset()
            elif kind == "cut the server off" and between is not None:
                between.reset()
            else:
                await kill(cluster, name)
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
    print(f"{faults} faults, {accepted} accepted, 0 lost")


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
async def test_nothing_is_lost_behind_pgbouncer(
    app: App, relevo_url: str, tmp_path: Path
) -> None:  # M27, M1, M2, M3, M4, M18, M26
    kinds = ("kill", "freeze", "cut off", "cut the server off")
    with Proxy.to(relevo_url) as proxy, pgbouncer(proxy.url(relevo_url)) as url:
        await storm(app, url, tmp_path, 48, kinds=kinds, between=proxy)
