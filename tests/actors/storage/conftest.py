"""What tests of the stored side of actors need: a database emptied for each, slots with owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relevo.actors.storing.storage import ActorStorage
from relevo.kernel.postgres import Wakeups
from tests.actors.storage.slots import Slots
from tests.support.emptying import empty, emptying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.kernel.postgres import Database
    from relevo.testing.databases import TestDatabases


@pytest.fixture(scope="module")
def actors_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def relevo_url(actors_url: str) -> str:
    """A database of the module, emptied before each test."""
    await empty(actors_url, emptying("^actor"))
    return actors_url


@pytest.fixture
async def slots(database: Database) -> Slots:
    """Eight slots of the placement group `default`, all owned by one host."""
    return await Slots.of(database)


@pytest.fixture
async def wakeups(database: Database) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(database)
    yield wakeups
    await wakeups.close()


@pytest.fixture
async def storage(database: Database, wakeups: Wakeups) -> AsyncIterator[ActorStorage]:
    storage = ActorStorage(database, wakeups)
    yield storage
    await storage.close()
