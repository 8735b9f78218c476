"""Containers on a fresh database, and other processes that use it too."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo import settings
from relevo.kernel.part import Connection
from relevo.kernel.postgres import Database, Wakeups
from relevo.store import Store
from relevo.store.service import StorePart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.store import Container
    from relevo.testing import Proxy


class Version(Struct, frozen=True):
    """A change as the log of all versions tells it."""

    range_id: int
    lsn: int
    ordinal: int
    operation: str
    id: str
    body: str | None
    previous: str | None
    previous_lsn: int | None
    ttl_expired: bool
    ts: Any
    pk: str


class World:
    """A store, its database, and as many other processes as a test wants."""

    def __init__(self, url: str, database: Database, stack: AsyncExitStack) -> None:
        self.url = url
        self._stack = stack
        self.database = database
        self.wakeups = Wakeups(database)
        self.store = Store(Connection(database, self.wakeups))
        stack.push_async_callback(self.wakeups.close)
        stack.push_async_callback(StorePart(self.store).close)

    def orders(self, **options: Any) -> Container[dict[str, Any]]:
        options.setdefault("ranges", 4)
        return self.store.container("orders", "/city", **options)

    async def another(self, through: Proxy | None = None) -> Store:
        """A store with connections and groups of its own, as another process has it."""
        url = self.url if through is None else through.url(self.url)
        told = settings.load({"database_url": url}, environ={})
        database = await self._stack.enter_async_context(await Database.open(told))
        wakeups = Wakeups(database)
        self._stack.push_async_callback(wakeups.close)
        store = Store(Connection(database, wakeups))
        self._stack.push_async_callback(StorePart(store).close)
        return store

    async def versions(self, name: str = "orders") -> list[Version]:
        """The log of all versions, in the order of each range."""
        rows = await self.database.fetch(
            "select v.* from relevo.item_version v join relevo.container c on c.id = v.container_id"
            " where c.name = $1 order by range_id, lsn, ordinal",
            name,
        )
        return [Version(*(row[field] for field in Version.__struct_fields__)) for row in rows]

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until so many statements of this database wait for a lock."""
        give_up = time.monotonic() + 30
        waiting = """select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'"""
        while await self.database.fetchval(waiting) < count:
            assert time.monotonic() < give_up, f"fewer than {count} statements wait for a lock"
            await asyncio.sleep(0.005)


@pytest.fixture
async def world(relevo_url: str, database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(relevo_url, database, stack)
