"""Hosts with a stateless type whose calls tests hold and let go."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.actors import Actor, Interface
from tests.support.emptying import empty, emptying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from relevo.actors.states import DeactivationReason
    from relevo.testing.databases import TestDatabases


class Press(Interface):
    async def stamp(self, tag: str) -> str: ...
    async def hold(self, tag: str) -> str: ...
    async def resist(self, tag: str) -> str: ...
    async def again(self, depth: int) -> int: ...
    async def fail(self) -> None: ...


class Works:
    """What the activations of a host do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0
        self.live: list[int] = []
        self.most = 0
        """Activations that were live at once."""
        self.log: list[tuple[str, str, int]] = []
        """The tag of a call, the name of its activation and its number, when it begins."""
        self.left: list[tuple[int, str]] = []
        self.running = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.fails_to_begin = False

    def gate(self, tag: str) -> asyncio.Event:
        return self.gates.setdefault(tag, asyncio.Event())

    async def until_begun(self, *tags: str) -> None:
        async with asyncio.timeout(20):
            while not set(tags) <= {tag for tag, _, _ in self.log}:
                await asyncio.sleep(0.002)

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _, _ in self.log]


class PressActor(Actor[None]):
    """Counts what is live from the first instruction of `__init__` to the end."""

    works: Works

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        works = self.works
        works.made += 1
        self.number = works.made
        works.live.append(self.number)
        works.most = max(works.most, len(works.live))

    async def on_activate(self) -> None:
        if self.works.fails_to_begin:
            self.works.live.remove(self.number)
            raise RuntimeError("by design")

    async def on_deactivate(self, reason: DeactivationReason) -> None:
        self.works.live.remove(self.number)
        self.works.left.append((self.number, reason))

    async def stamp(self, tag: str) -> str:
        self.works.log.append((tag, str(self.ctx.key), self.number))
        await asyncio.sleep(0)
        return f"{tag} at {self.works.name}"

    async def hold(self, tag: str) -> str:
        self.works.log.append((tag, str(self.ctx.key), self.number))
        self.works.running += 1
        try:
            await self.works.gate(tag).wait()
        finally:
            self.works.running -= 1
        return f"{tag} at {self.works.name}"

    async def resist(self, tag: str) -> str:
        """Go on though it is canceled."""
        self.works.log.append((tag, str(self.ctx.key), self.number))
        while not self.works.gate(tag).is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.works.gate(tag).wait()
        return tag

    async def again(self, depth: int) -> int:
        if depth == 0:
            return self.number
        return await self.app.stateless(Press).again(depth - 1)

    async def fail(self) -> None:
        raise RuntimeError("by design")

    app: App


class Host:
    """An app that serves the type, and what its activations do."""

    def __init__(self, app: App, works: Works) -> None:
        self.app = app
        self.works = works

    @property
    def press(self) -> Any:
        return self.app.stateless(Press)


class Hosts:
    """Starts hosts on one database; they stop with the test."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack

    def app(self, **options: Any) -> App:
        values = {"database_url": self._url, "actors_slots": 2, "drain_seconds": 5.0, **options}
        return App(settings=settings.load(values, environ={}))

    def define(self, app: App, name: str, **options: Any) -> Works:
        works = Works(name)
        cls = type("PressHere", (PressActor,), {"works": works, "app": app})
        app.stateless("press", implements=Press, **options)(cls)
        return works

    async def client(self) -> App:
        """Connect an app that neither serves nor defines the type."""
        return await self._stack.enter_async_context(self.app())

    async def start(self, name: str = "a", **options: Any) -> Host:
        app = self.app(host_name=name)
        works = self.define(app, name, **options)
        await self._stack.enter_async_context(app.host())
        return Host(app, works)


@pytest.fixture(scope="module")
def stateless_url(relevo_databases: TestDatabases) -> Iterator[str]:
    url = relevo_databases.create()
    yield url
    relevo_databases.drop(url)


@pytest.fixture
async def hosts(stateless_url: str) -> AsyncIterator[Hosts]:
    await empty(stateless_url, emptying("^actor"))
    async with AsyncExitStack() as stack:
        yield Hosts(stateless_url, stack)
