"""Routes are read from leases and members, shared by callers, and fresh soon after a move."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.actors.calls.routing import KIND, Routes
from relevo.actors.core.routing import NOWHERE, Route, route_topic
from relevo.kernel.leases.model import ACTORS, Membership
from tests.actors.transport.conftest import PATIENCE

if TYPE_CHECKING:
    from relevo.kernel.leases.held import Lease

pytestmark = pytest.mark.anyio
QUICK: dict[str, Any] = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5}


async def test_routes_follow_the_owners_of_slots(relevo_url: str) -> None:
    taken: asyncio.Queue[tuple[str, Lease]] = asyncio.Queue()

    async with AsyncExitStack() as stack:

        async def start(name: str, address: str | None) -> App:
            app = App(settings=settings.load({**QUICK, "database_url": relevo_url}, environ={}))
            await stack.enter_async_context(app.host(name=name))

            async def hold(lease: Lease) -> None:
                taken.put_nowait((name, lease))
                app.wakeups.send(route_topic(unit.id))
                await lease.stopping.wait()

            unit = await app.leases.join(
                KIND, "default", hold, leases=["0", "1"], settings=ACTORS,
                membership=Membership(address=address),
            )  # fmt: skip
            return app

        one = await start("one", "unix:/one")
        async with asyncio.timeout(PATIENCE):
            held = {lease.name: lease.fence.epoch for _, lease in [await taken.get() for _ in "01"]}
        hosts: list[tuple[str, str, int]] = []
        routes = Routes(one.database, one.wakeups, lambda *host: hosts.append(host))
        assert routes.table("default").route(0) == NOWHERE
        found = await asyncio.gather(*(routes.route("default", slot) for slot in (0, 1, 0, 1)))
        assert found[:2] == [Route(held[str(n)], "unix:/one", "one", 0) for n in (0, 1)]
        assert routes.table("default").slots == 2
        life = one.leases.life
        ((name, incarnation, since),) = set(hosts)
        assert (name, incarnation) == ("one", str(life.incarnation))
        assert since > 1_600_000_000_000_000
        assert len(hosts) <= 2, "callers at the same time share a read"
        assert await routes.route("unknown", 0) == NOWHERE

        running = asyncio.ensure_future(routes.run())
        await start("two", "unix:/two")
        async with asyncio.timeout(PATIENCE):
            _, lease = await taken.get()
            slot = int(lease.name)
            while routes.table("default").route(slot).address != "unix:/two":
                await asyncio.sleep(0.01)
        assert routes.table("default").route(slot) == Route(
            lease.fence.epoch, "unix:/two", "two", 0
        )
        assert lease.fence.epoch > held[lease.name]
        assert not routes.table("default").is_late(slot, held[lease.name])  # it was handed over
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await routes.close()


async def test_a_host_without_an_address_is_no_route(relevo_url: str) -> None:
    app = App(settings=settings.load({**QUICK, "database_url": relevo_url}, environ={}))
    held = asyncio.Event()

    async def hold(lease: Lease) -> None:
        held.set()
        await lease.stopping.wait()

    async with app.host(name="one"):
        await app.leases.join(KIND, "default", hold, leases=["0"], settings=ACTORS)
        async with asyncio.timeout(PATIENCE):
            await held.wait()
        routes = Routes(app.database, app.wakeups)
        route = await routes.route("default", 0)
        assert (route.address, route.owner) == (None, "one")
        await routes.close()
