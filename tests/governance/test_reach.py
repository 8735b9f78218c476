"""Clients reach pools though no program uses any: a host begins to serve them."""

from __future__ import annotations

import asyncio

import pytest

from relevo import App
from relevo.errors import NoHost
from relevo.governance.core.pools import PoolOptions
from relevo.governance.operating.pools import PoolService
from relevo.governance.reach import SQL, TOPIC
from relevo.kernel.postgres.wakeups import EVERYBODY

pytestmark = pytest.mark.anyio


def serves(app: App) -> bool:
    """Whether a host knows the actors of the kit."""
    return app.governance.serves


async def test_a_host_serves_the_kit_when_a_client_asks(relevo_url: str) -> None:
    async with App(relevo_url) as client:
        pools = PoolService(client.governance)
        with pytest.raises(NoHost, match="relevo up"):
            await pools.put("erp", PoolOptions(size=2))
        host = App(relevo_url)
        async with host, host.host():
            before = host.governance.serves
            assert await pools.put("erp", PoolOptions(size=2))
            assert (before, host.governance.serves) == (False, True)
            granted = await pools.lease("erp", ttl=30)
            assert granted.number == 1
            assert (await pools.get("erp")).in_use == 1
        later = App(relevo_url)
        async with later, later.host():
            assert (await pools.get("erp")).in_use == 1  # also by a host that nobody asked


async def test_a_program_without_a_host_of_its_own_uses_a_pool(relevo_url: str) -> None:
    async with App(relevo_url) as client:
        pool = client.governance.pool("erp", size=2)
        with pytest.raises(NoHost, match="relevo up"):  # at once: no host has ever run
            async with pool.lease(timeout=3_600):
                pass
        host = App(relevo_url)
        async with host, host.host(), pool.lease():
            assert (await pool.view()).in_use == 1
        with pytest.raises(NoHost, match="relevo up"):  # none runs any more
            async with pool.lease(timeout=3_600):
                pass


async def test_hosts_that_use_nothing_of_the_kit_serve_it_for_one_that_does(
    relevo_url: str,
) -> None:
    plain, user = App(relevo_url), App(relevo_url)
    user.governance.pool("erp", size=2)
    async with plain, plain.host(name="plain"):
        assert not serves(plain)
        async with user, user.host(name="user"):
            async with asyncio.timeout(20):
                while not serves(plain):
                    await asyncio.sleep(0.01)
        assert (await plain.governance.pool("erp", size=2).view()).size == 2


async def test_a_wake_up_for_everybody_is_no_use_of_the_kit(relevo_url: str) -> None:
    app = App(relevo_url)
    async with app, app.host():
        heard = app.wakeups.signal(TOPIC)
        with heard:
            app.wakeups.send(EVERYBODY)
            assert await heard.wait(10)
        await asyncio.sleep(0)
        async with app.database.transaction() as tx:
            assert not await tx.fetchval(SQL.is_kit_used)
        assert not app.governance.serves
