"""Processes on one database, directly or behind PgBouncer, and an app whose connections are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo import App, settings
from relevo.testing.cluster import Cluster
from relevo.testing.proxy import Proxy
from tests.jobs.office import QUICK
from tests.kernel.postgres.servers import pgbouncer
from tests.messaging.faults import programs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SETTINGS = {
    **QUICK, "lease_expiration": 2.0, "lease_renew": 0.4, "pool_size": 4, "drain_seconds": 0.2,
}  # fmt: skip


@pytest.fixture
def entrance(relevo_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL by which processes reach the database; `pgbouncer` as parameter puts one between."""
    if getattr(request, "param", "postgresql") == "pgbouncer":
        with pgbouncer(relevo_url) as url:
            yield url
    else:
        yield relevo_url


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "open"


@pytest.fixture
async def post(app: App) -> programs.Post:
    for statement in programs.TABLES.split(";"):
        await app.database.write(statement.replace("table", "table if not exists"))
    await app.database.write("truncate effect, delivery, outbox")
    post = programs.Post(app)
    await post.make()
    return post


@pytest.fixture
async def cluster(entrance: str, tmp_path: Path, gate: Path) -> AsyncIterator[Cluster]:
    async with Cluster(
        entrance, "tests.messaging.faults.programs:depot", tmp_path, settings=SETTINGS,
        environment={programs.GATE_VARIABLE: str(gate)},
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture
def proxy(relevo_url: str) -> Iterator[Proxy]:
    with Proxy.to(relevo_url) as proxy:
        yield proxy


@pytest.fixture
async def far(relevo_url: str, proxy: Proxy) -> AsyncIterator[App]:
    """An app that reaches the database by way of the proxy."""
    told = settings.load({"database_url": proxy.url(relevo_url)}, environ={})
    async with App(settings=told) as app:
        yield app
