"""What tests are offered works with a Relevo in any schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo import settings
from relevo.kernel.postgres.database import Database
from relevo.testing import diagnosis, trace
from relevo.testing.clock import Clock
from relevo.testing.cluster import Cluster
from relevo.testing.databases import TestDatabases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Iterator[str]:
    databases = TestDatabases("shop")
    made = databases.create()
    yield made
    databases.drop(made)
    databases.close()


async def test_clusters_clocks_and_traces_work_in_any_schema(url: str, tmp_path: Path) -> None:
    told = settings.load({"database_url": url, "schema": "shop"}, environ={})
    program = "tests.kernel.leases.programs:spread"
    async with (
        await Database.open(told) as database,
        Cluster(url, program, tmp_path, settings={"schema": "shop"}) as cluster,
    ):
        await trace.install(database)
        await cluster.start("a")

        async def owns() -> bool:
            return any(change.owner for change in await trace.owner_changes(database))

        await cluster.until(owns, "the host owns leases")
        before = await Clock(database).now()
        assert (await Clock(database).advance(100) - before).total_seconds() >= 100
        assert "name=a" in await diagnosis.describe(url, "shop")
        trace.check_invariants(await trace.owner_changes(database))
