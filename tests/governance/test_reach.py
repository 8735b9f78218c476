"""Clients reach pools though no program uses any: a host begins to serve them."""

from __future__ import annotations

import pytest

from relevo import App
from relevo.errors import NoHost
from relevo.governance.core.pools import PoolOptions
from relevo.governance.operating.pools import PoolService

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
