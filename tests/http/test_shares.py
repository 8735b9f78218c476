"""A key that holds up its own requests does not hold up those of others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

if TYPE_CHECKING:
    from tests.http.conftest import Opens

pytestmark = pytest.mark.anyio


async def test_a_key_whose_requests_hang_leaves_connections_for_the_others(
    open_site: Opens, relevo_url: str
) -> None:
    blocker = await asyncpg.connect(relevo_url)
    async with open_site() as site, asyncio.timeout(90):
        async with blocker.transaction():
            await blocker.execute("lock table relevo.host in access exclusive mode")
            hanging = [
                asyncio.ensure_future(site.ask("GET", "/v1/hosts", key="viewer")) for _ in range(40)
            ]
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            while await blocker.fetchval(waiting) < 2:
                await asyncio.sleep(0.01)
            for _ in range(5):
                other = await site.ask("GET", "/v1/keys", key="admin")
                assert other.status == 200
            assert await site.services.app.database.fetchval("select 1") == 1
            assert await blocker.fetchval(waiting) <= 3
        assert {reply.status for reply in await asyncio.gather(*hanging)} == {200}
    await blocker.close()
