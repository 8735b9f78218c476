"""What tests of messaging need: a database emptied for each test, apps, entities, hosts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from relevo import App
from relevo.messaging.arrivals import Arrivals
from relevo.messaging.definitions import Definitions
from relevo.messaging.entities import Entities
from relevo.messaging.host import MessagingPart
from tests.messaging.consumers.depot import Depot
from tests.support.emptying import empty, emptying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.kernel.postgres import Database
    from relevo.testing.databases import TestDatabases


@pytest.fixture(scope="module")
def messages_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def relevo_url(messages_url: str) -> str:
    """A database of the module, emptied before each test."""
    await empty(messages_url, emptying("^message"))
    return messages_url


@pytest.fixture
async def depot(relevo_url: str, app: App) -> AsyncIterator[Depot]:
    """Queues, and hosts on demand, on a database of their own."""
    async with AsyncExitStack() as stack:
        yield Depot(relevo_url, app, stack)


@pytest.fixture
def entities(database: Database) -> Entities:
    return Entities(database)


@pytest.fixture
def definitions(database: Database) -> Definitions:
    return Definitions(database)


@pytest.fixture
async def app(relevo_url: str) -> AsyncIterator[App]:
    """A client; no host serves, unless a test starts one."""
    async with App(relevo_url) as app:
        yield app


class Post:
    """Does what a host would do meanwhile."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def tend(self) -> None:
        """Do the duties of the leader once."""
        timers = self._app.parts.of(MessagingPart).timers
        await timers.tend()
        await timers.forget()

    async def accept(self) -> None:
        """Accept what has arrived."""
        messaging = self._app.messaging
        arrivals = Arrivals(*messaging.connection.opened, messaging.tools)
        while await arrivals.accept():
            pass


@pytest.fixture
def post(app: App) -> Post:
    return Post(app)
