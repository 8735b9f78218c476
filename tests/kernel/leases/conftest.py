"""Several hosts in one process, each with its own App, on one database."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.kernel.leases import Directory, UnitSettings
from relevo.kernel.postgres import Wakeups

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.kernel.leases import Lease, LeaseInfo, Unit
    from relevo.kernel.postgres import Database

QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "drain_seconds": 5.0}


class Fleet:
    """Starts hosts and waits for what they come to."""

    def __init__(self, url: str, database: Database, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.database = database
        self.directory = Directory(database, Wakeups(database))
        self.apps: dict[str, App] = {}
        self.held: dict[str, set[str]] = {}
        self._exits: dict[str, AsyncExitStack] = {}

    async def host(self, name: str, **told: Any) -> App:
        own = await self._stack.enter_async_context(AsyncExitStack())
        app = App(settings=settings.load({**QUICK, **told, "database_url": self._url}, environ={}))
        await own.enter_async_context(app.host(name=name))
        self._exits[name] = own
        self.apps[name] = app
        return app

    async def leave(self, name: str) -> None:
        await self._exits.pop(name).aclose()

    async def join(
        self, app: App, count: int, *, unit: str = "u", holder: Any = None, **options: Any
    ) -> Unit:
        options.setdefault("settings", UnitSettings(handoff_timeout=2.0, rest=0.2))
        names = [f"{i:03}" for i in range(count)]
        return await app.leases.join("feed", unit, holder or self.hold, leases=names, **options)

    async def a_lease_of(self, app: App, unit: str = "u") -> Lease:
        async def held() -> bool:
            return any(lease.unit == unit for lease in app.leases.held)

        await self.until(held, f"a lease of {unit} is held")
        return next(lease for lease in app.leases.held if lease.unit == unit)

    async def hold(self, lease: Lease) -> None:
        await lease.stopping.wait()

    async def leases(self, unit: str = "u") -> dict[str, LeaseInfo]:
        found = await self.directory.leases(unit=unit, limit=1000)
        return {lease.name: lease for lease in found}

    async def counts(self, unit: str = "u") -> dict[str | None, int]:
        found: dict[str | None, int] = {}
        for lease in (await self.leases(unit)).values():
            found[lease.owner] = found.get(lease.owner, 0) + 1
        return found

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, timeout: float = 30.0
    ) -> None:
        give_up = time.monotonic() + timeout
        while not await condition():
            if time.monotonic() > give_up:
                raise AssertionError(f"not within {timeout} s: {what}; {await self.counts()}")
            await asyncio.sleep(0.01)

    async def until_counts(self, wanted: dict[str | None, int], unit: str = "u") -> None:
        async def reached() -> bool:
            return await self.counts(unit) == wanted

        await self.until(reached, f"{unit} owned as {wanted}")


@pytest.fixture
async def fleet(relevo_url: str, database: Database) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield Fleet(relevo_url, database, stack)
