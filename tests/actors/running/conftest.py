"""What tests of running actors need: a database emptied for each, and hosts on demand."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from tests.actors import bank
from tests.actors.running.lab import Blocking, define_lab
from tests.jobs.office import until
from tests.support.emptying import empty, emptying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from relevo.actors.running.activation import Activation
    from relevo.actors.running.runtime import ActorRuntime
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


class Host:
    """An app that serves actors."""

    def __init__(self, app: App, gates: bank.Gates) -> None:
        self.app = app
        self.gates = gates

    @property
    def runtime(self) -> ActorRuntime:
        return self.app.actors.runtime

    def account(self, key: Any) -> Any:
        return self.app.actor(bank.Account, key)

    def activation(self, canonical: str) -> Activation | None:
        return self.runtime.activation_of(canonical)

    async def rows(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.app.database.fetch(sql, *arguments)]

    async def revision(self, canonical: str) -> int:
        stored = await self.app.actors.storage.load(canonical)
        return stored.revision


class Hosts:
    """Starts hosts on one database; they stop with the test."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack

    def app(self, **options: Any) -> App:
        values = {"database_url": self._url, "actors_slots": 2, "drain_seconds": 5.0, **options}
        return App(settings=settings.load(values, environ={}))

    async def enter(self, app: App) -> None:
        """Connect a client."""
        await self._stack.enter_async_context(app)

    async def start(
        self, define: Callable[[App, bank.Gates], Any] = bank.define, **options: Any
    ) -> Host:
        app, gates = self.app(**options), bank.Gates()
        define(app, gates)
        await self._stack.enter_async_context(app.host())
        slots = app.actors.runtime.slots
        await until(lambda: len(slots) == 2, "it owns its slots")
        return Host(app, gates)


@pytest.fixture
async def hosts(relevo_url: str) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(relevo_url, stack)


@pytest.fixture
async def host(hosts: Hosts) -> Host:
    return await hosts.start()


@pytest.fixture
def blocking() -> Blocking:
    return Blocking()


@pytest.fixture
async def lab(hosts: Hosts, blocking: Blocking) -> Host:
    return await hosts.start(lambda app, gates: define_lab(app, gates, blocking))
