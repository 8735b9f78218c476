"""A server with actors, and a client of it; one for all tests of a module."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from relevo.actors import Actor, Interface, Tick, method, reminder_handler
from tests.http.conftest import serve_site
from tests.messaging.http.conftest import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo import App
    from relevo.testing.databases import TestDatabases
    from tests.http.conftest import Site


class Refused(Exception):
    """Declared by `pay`."""


class Till(Interface):
    async def add(self, cents: int, note: str = "") -> int: ...
    @method(raises=(Refused,))
    async def pay(self, cents: int) -> int: ...
    async def break_down(self) -> None: ...
    async def remind(self, name: str, after: float, attempts: int | None = None) -> None: ...
    @method(read_only=True)
    async def total(self) -> int: ...
    async def wait(self) -> int: ...


class TillState(Struct):
    cents: int = 0
    reminded: int = 0


class Counter(Interface):
    async def count(self) -> int: ...


class Bench:
    """What the tests of a module share: the site, and switches of its actors."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.app = site.services.app
        self.fails = True
        self.reminded = asyncio.Event()
        self.open = asyncio.Event()

    def wire(self, key: str = "admin") -> Wire:
        return Wire(self.site, key)


def define(app: App, bench: Bench) -> None:
    @app.actor("till", implements=Till)
    class TillActor(Actor[TillState]):
        async def add(self, cents: int, note: str = "") -> int:
            if cents < 0 and bench.fails:
                raise ValueError("not below 0")
            self.state.cents += cents
            return self.state.cents

        async def pay(self, cents: int) -> int:
            raise Refused(f"{cents} is too much")

        async def break_down(self) -> None:
            raise RuntimeError("a secret of the host")

        async def remind(self, name: str, after: float, attempts: int | None = None) -> None:
            await self.reminders.set(name, self.on_time, after=after, attempts=attempts)

        async def total(self) -> int:
            return self.state.cents

        async def wait(self) -> int:
            await bench.open.wait()
            return 1

        @reminder_handler
        async def on_time(self, tick: Tick[Any]) -> None:
            if tick.name.startswith("bad") and bench.fails:
                raise ValueError("not now")
            self.state.reminded += 1
            bench.reminded.set()

    @app.stateless("counter", implements=Counter, max_local=3)
    class CounterActor(Actor[None]):
        counted = 0

        async def count(self) -> int:
            self.counted += 1
            return self.counted


@pytest.fixture(scope="module")
async def bench(
    relevo_databases: TestDatabases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    url = relevo_databases.create()
    home = tmp_path_factory.mktemp("home")
    async with serve_site(url, home, actors_slots=4) as site:
        bench = Bench(site)
        define(site.services.app, bench)
        async with site.services.app.host(name="alpha"):
            yield bench
    relevo_databases.drop(url)
