"""An event log on a fresh database, with a small catalogue."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.kernel.events import Catalogue, Event, EventLog, EventType
from relevo.kernel.part import Connection
from relevo.kernel.postgres import Wakeups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.kernel.events import Recorded
    from relevo.kernel.postgres import Database


class Noted(Struct, frozen=True):
    """What the tests' events carry."""

    n: int
    text: str = ""


class Closed(Struct, frozen=True):
    pass


NOTED = EventType(name="test.thing.noted", payload=Noted, sentence="Somebody noted a thing.")
CLOSED = EventType(
    name="test.thing.closed", payload=Closed, sentence="A thing was closed.", version=3
)


def noted(n: int, subject: str = "thing/1", text: str = "") -> Event:
    return Event(NOTED.name, subject, n, Noted(n, text))


class World:
    """The log, its database, and short hands for both."""

    def __init__(self, database: Database, log: EventLog) -> None:
        self.database = database
        self.log = log

    async def append(self, *events: Event, **options: Any) -> None:
        """Append in a transaction of its own."""
        async with self.database.transaction() as tx:
            await self.log.append(tx, events, **options)

    async def all(
        self, after: str | None = None, *, max_items: int = 7, **options: Any
    ) -> list[Recorded]:
        """Read page by page until caught up."""
        found: list[Recorded] = []
        while True:
            page = await self.log.read(after, max_items=max_items, **options)
            found += page.events
            after = page.continuation
            if page.caught_up:
                return found

    async def end(self) -> str:
        """The continuation behind everything that is there."""
        return (await self.log.read(start="now")).continuation

    async def partitions(self) -> list[str]:
        rows = await self.database.fetch(
            "select inhrelid::regclass::text as name from pg_inherits"
            " where inhparent = 'relevo.event_batch'::regclass order by 1"
        )
        return [row["name"] for row in rows]

    async def until_waiting(self, count: int = 1) -> None:
        """Wait until so many statements of this database wait for a lock."""
        give_up = time.monotonic() + 30
        waiting = """select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'"""
        while await self.database.fetchval(waiting) < count:
            assert time.monotonic() < give_up, f"fewer than {count} statements wait for a lock"
            await asyncio.sleep(0.005)


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    wakeups = Wakeups(database)
    yield World(database, EventLog(Connection(database, wakeups), Catalogue([NOTED, CLOSED])))
    await wakeups.close()
