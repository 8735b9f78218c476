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
