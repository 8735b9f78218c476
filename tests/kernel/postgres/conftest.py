from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo import limits, settings
from relevo.kernel.postgres.database import Database
from relevo.testing.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Ledger:
    """A table of notes, seen from a connection that no fault of a test reaches."""

    PUT = "insert into note (id) values ($1)"
    PUT_AGAIN = "insert into note (id) values ($1) on conflict do nothing"

    def __init__(self, database: Database) -> None:
        self.database = database

    async def notes(self) -> list[str]:
        rows = await self.database.fetch("select id from note order by place")
        return [row["id"] for row in rows]


@pytest.fixture
async def ledger(database: Database) -> Ledger:
    await database.write(
        "create table note (place bigint generated always as identity, id text primary key)"
    )
    return Ledger(database)


@pytest.fixture
def proxy(relevo_url: str) -> Iterator[Proxy]:
    """The network between the test's database and `proxied`."""
    with Proxy.to(relevo_url) as proxy:
        yield proxy


@pytest.fixture
async def proxied(relevo_url: str, proxy: Proxy) -> AsyncIterator[Database]:
    """A pool that reaches the test's database by way of `proxy`."""
    told = settings.load({"database_url": proxy.url(relevo_url)}, environ={})
    async with await Database.open(told) as database:
        yield database


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of a call, short enough to be reached in a test."""
    monkeypatch.setattr(limits, "ATTEMPTS_MAX", 3)
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 0.5)
    monkeypatch.setattr(limits, "STATEMENT_SECONDS_MAX", 0.5)


def retries(database: Database) -> int:
    """How many attempts had to be repeated."""
    return int(database.metrics.registry.get_sample_value("relevo_store_retries_total") or 0)
