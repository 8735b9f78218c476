"""Host processes with actors, and a client of them."""

from __future__ import annotations

import contextlib
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from relevo import App, settings
from relevo.actors import ActorRef
from relevo.errors import Conflict
from relevo.testing import trace
from relevo.testing.cluster import Cluster
from relevo.testing.turns import check_turns, outputs
from tests.actors.hosts.ledger import Ledger
from tests.actors.hosts.programs import TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from relevo.kernel.leases import LeaseInfo
    from relevo.kernel.postgres import Database

QUICK = {
    "lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 1.0, "pool_size": 4,
    "actors_slots": 4, "drain_seconds": 5.0,
}  # fmt: skip


class Callers(Protocol):
    """What calls while hosts are killed."""

    async def cancel(self) -> None: ...


class Site:
    """A cluster of hosts with actors, a client of them, and what callers of it were told."""

    def __init__(self, cluster: Cluster, app: App) -> None:
        self.cluster = cluster
        self.app = app
        self.ledgers: list[Callers] = []

    def ledger(self, actors: int, *, timeout: float = 30.0) -> Ledger:
        ledger = Ledger(self.app, actors, timeout=timeout)
        self.ledgers.append(ledger)
        return ledger

    async def start(self, *names: str) -> None:
        for name in names:
            await self.cluster.start(name)
        await self.until_shared(*names)

    async def slots(self) -> list[LeaseInfo]:
        return await self.app.directory.leases(kind="actors", unit="default")

    async def until_shared(self, *hosts: str) -> None:
        async def shared() -> bool:
            owners = [slot.owner for slot in await self.slots()]
            return set(owners) == set(hosts)

        await self.cluster.until(shared, f"slots shared by {hosts}")

    async def until_owned(self, key: str, host: str) -> None:
        ref = self.ref(key)

        async def owned() -> bool:
            return await self.app.actors.owner(ref) == host

        await self.cluster.until(owned, f"{key} at {host}")
        await self.read_routes()

    async def read_routes(self) -> None:
        """Let the next calls of this process go to the owners of now; they may be a second old."""
        await self.app.actors.network.routes.refresh("default")

    async def until_called(self, ledger: Ledger, calls: int) -> None:
        wanted = ledger.calls + calls
        await self.cluster.until(lambda: ledger.calls >= wanted, "there is load")

    async def bring(self, key: str, host: str) -> None:
        """Let a host own an actor's slot, whatever the balancer does at the same time."""
        ref = self.ref(key)

        async def owned() -> bool:
            if await self.app.actors.owner(ref) == host:
                return True
            with contextlib.suppress(Conflict):
                await self.app.actors.move(ref, to=host)
            return False

        await self.cluster.until(owned, f"{key} at {host}")
        await self.read_routes()

    def ref(self, key: str) -> ActorRef:
        return ActorRef.of(TYPE, key)

    async def check(self) -> None:
        changes = await trace.owner_changes(self.app.database)
        records = self.cluster.records()
        left = outputs(records)
        trace.check_invariants(changes, left)  # I2, I3
        check_turns(records)  # I9, I11, I24
        assert left, "the nodes did nothing; the check would prove nothing"


@asynccontextmanager
async def open_site(
    database: Database,
    url: str,
    program: str,
    environment: Mapping[str, str] | None = None,
    client: Mapping[str, object] | None = None,
) -> AsyncIterator[Site]:
    """Run a program in processes that keep their leases for a short time, and make a client."""
    await trace.install(database)
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="rel-") as folder:
        told = {**QUICK, "home": f"{folder}/home"}
        chosen = settings.load({**told, **(client or {}), "database_url": url}, environ={})
        async with (
            Cluster(url, program, Path(folder), settings=told, environment=environment) as cluster,
            App(settings=chosen) as app,
        ):
            made = Site(cluster, app)
            yield made
            for ledger in made.ledgers:
                await ledger.cancel()  # a test that failed has not stopped its callers
