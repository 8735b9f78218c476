"""An app with a real receiver on loopback, and events of a type of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web
from msgspec import Struct

from relevo import App, settings
from relevo.kernel.events import Event, EventType
from tests.kernel.outbound.outside import Outside, outside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


class Cooked(Struct, frozen=True, kw_only=True):
    number: int
    lane: str = "grill"
    labels: dict[str, str] = {}


COOKED = EventType(name="kitchen.dish.cooked", payload=Cooked, sentence="A dish was cooked.")


class Kitchen:
    """An app that appends events, and what its receiver was sent."""

    def __init__(self, app: App, host: Outside) -> None:
        self.app = app
        self.host = host

    def url(self, path: str) -> str:
        return self.host.url(path)

    async def cook(
        self, *numbers: int, dish: str = "soup", pipeline: int | None = None, **more: Any
    ) -> None:
        """Append events of one subject, in one transaction."""
        events = [
            Event(COOKED.name, f"dish/{dish}", number, Cooked(number=number, **more))
            for number in numbers
        ]
        async with self.app.database.transaction() as tx:
            by: Any = {} if pipeline is None else {"by": "pipeline", "pipeline": pipeline}
            await self.app.events.append(tx, events, **by)
        self.app.events.sent()

    def numbers(self, path: str) -> list[int]:
        """The numbers that a path was sent, in order."""
        return [one["data"]["number"] for one in self.sent(path) if "number" in one["data"]]

    def sent(self, path: str) -> list[dict[str, Any]]:
        return [
            body[0] if isinstance(body, list) else body
            for one in self.host.asked
            if one.path == path
            for body in [msgspec.json.decode(one.body)]
        ]

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait for a condition; the test's own limit ends it."""
        while not what():
            await asyncio.sleep(0.01)

    async def until_stored(self, what: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition that is read from the database."""
        while not await what():
            await asyncio.sleep(0.02)


def connected(url: str, **more: Any) -> App:
    """Return an app that may call loopback, and knows the events of these tests."""
    app = App(
        settings=settings.load(
            {"database_url": url, "outbound_allow": ("127.0.0.1",), **more}, environ={}
        )
    )
    app.events.catalogue.register(COOKED)
    return app


@asynccontextmanager
async def kitchen(url: str, **more: Any) -> AsyncIterator[Kitchen]:
    """Open an app as a host, with a receiver."""
    async with outside() as host, connected(url, **more) as app, app.host(name="h"):
        yield Kitchen(app, host)


class Gate:
    """A receiver that answers when it is told to."""

    def __init__(self, host: Outside, path: str) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        host.at(path, self._answer)

    async def _answer(self, _: web.Request) -> web.StreamResponse:
        self.asked.set()
        await self.go_on.wait()
        return web.Response(status=204)
