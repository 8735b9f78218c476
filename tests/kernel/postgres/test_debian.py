"""The PostgreSQL that Debian ships now: it is installed, migrated and worked on."""

from __future__ import annotations

import pytest

from relevo import settings
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.migration import migrate
from tests.kernel.postgres.errand import run_errands
from tests.kernel.postgres.servers import debian_server, pgbouncer

pytestmark = pytest.mark.anyio

ACCESS = "local all all trust\nhost all all 127.0.0.1/32 trust\n"


async def test_an_empty_server_is_migrated_and_does_every_kind_of_work() -> None:
    with debian_server(ACCESS, {}, {}) as port:
        url = f"postgresql://relevo@127.0.0.1:{port}/relevo"
        told = settings.load({"database_url": url}, environ={})
        async with await Database.open(told) as database:
            assert await migrate.up(database) == ["0001_schema"]
            assert await migrate.check(database) == []
        await run_errands(url)
        with pgbouncer(url) as pooled:  # the same through a pooler in transaction mode
            await run_errands(pooled)
