"""How fast leases are shared, and how fast a dead host's work is back: real host processes."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import Figure
from relevo import settings
from relevo.kernel.leases import Directory
from relevo.kernel.postgres import Database, Wakeups
from relevo.kernel.postgres.embedded.server import EmbeddedServer
from relevo.kernel.postgres.migration import migrate
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.leases import Lease
    from relevo.testing.recorder import Recorder

HOW = """
448 leases of a non-strict unit, hosts as real processes with product defaults (renew 3 s, ttl 10 s,
acquire 5 s), embedded PostgreSQL with fsync on. Joined: from the start of the fifth process, its
interpreter's start included, until counts differ by at most one. Killed: from SIGKILL of one of
five until four own everything. `beside` is the time that is promised.
"""
LEASES = 448


async def many(app: App, record: Recorder) -> None:
    """What the host processes run."""

    async def hold(lease: Lease) -> None:
        await lease.stopping.wait()

    names = [f"{i:03}" for i in range(LEASES)]
    await app.leases.join("feed", "many", hold, leases=names)


async def run() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        home = Path(folder) / "home"
        server = await asyncio.to_thread(EmbeddedServer.join, home)
        try:
            return await _measure(server.url, Path(folder))
        finally:
            await asyncio.to_thread(server.leave)


async def _measure(url: str, folder: Path) -> list[Figure]:
    async with await Database.open(settings.load({"database_url": url}, environ={})) as database:
        await migrate.up(database)
        async with Cluster(url, "bench.leases:many", folder) as cluster:
            hosts = ["a", "b", "c", "d", "e"]
            for name in hosts[:4]:
                await cluster.start(name)
            await _until_shared(database, cluster, hosts[:4])
            started = time.monotonic()
            await cluster.start("e")
            await _until_shared(database, cluster, hosts)
            joined = time.monotonic() - started
            started = time.monotonic()
            cluster.nodes["c"].kill()
            await _until_shared(database, cluster, ["a", "b", "d", "e"])
            killed = time.monotonic() - started
    return [
        Figure(name="448 leases, 4 to 5 hosts: balanced", measured=joined, unit="s",
               beside=12.0, bound=1.0, sense="at_most"),
        Figure(name="448 leases, one of 5 hosts killed: balanced", measured=killed, unit="s",
               beside=16.0, bound=1.0, sense="at_most"),
    ]  # fmt: skip


async def _until_shared(database: Database, cluster: Cluster, hosts: list[str]) -> None:
    directory = Directory(database, Wakeups(database))

    async def shared() -> bool:
        found: dict[str | None, int] = {}
        for lease in await directory.leases(unit="many", limit=LEASES):
            found[lease.owner] = found.get(lease.owner, 0) + 1
        return set(found) == set(hosts) and max(found.values()) - min(found.values()) <= 1

    await cluster.until(shared, f"{LEASES} leases shared by {hosts}", timeout=120)
