"""A lease skips to the head that it was told, but never past what its own read has seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.feed.reading import log as reading
from relevo.feed.reading.poller import POLLS
from relevo.store.keys import epk
from tests.feed.shop import OPTIONS, QUICK, until

if TYPE_CHECKING:
    from relevo.feed import Change

pytestmark = pytest.mark.anyio
MIDDLE = "20"
"""Where the only range is cut into two leases."""


def a_key(*, low: bool) -> str:
    keys = (f"k{n}" for n in range(100))
    return next(key for key in keys if (epk((key,)) < MIDDLE) == low)


class Gates:
    """Holds a question before it is asked, or its answer before it is heard."""

    def __init__(self) -> None:
        self.holding: set[str] = set()
        self.reached = {name: asyncio.Event() for name in ("first", "second", "read")}
        self.go_on = {name: asyncio.Event() for name in self.reached}
        self.heard = asyncio.Event()
        self.both_idle = asyncio.Event()

    async def hold(self, name: str) -> None:
        self.holding.discard(name)
        self.reached[name].set()
        await self.go_on[name].wait()

    def install(self, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
        fetch, read = app.database.fetch, reading.read

        async def gated_fetch(sql: str, *args: Any) -> Any:
            if sql not in POLLS.values():
                return await fetch(sql, *args)
            if "second" in self.holding and self.go_on["first"].is_set():
                await self.hold("second")
                rows = await fetch(sql, *args)
                asyncio.get_running_loop().call_soon(self.heard.set)
                return rows
            rows = await fetch(sql, *args)
            if not rows and len(set(args[0])) == 2:
                self.both_idle.set()
            if rows and "first" in self.holding:
                await self.hold("first")
            return rows

        async def gated_read(*args: Any, **options: Any) -> Any:
            batch = await read(*args, **options)
            interval = args[4]
            if "read" in self.holding and self.go_on["first"].is_set() and interval.low < MIDDLE:
                await self.hold("read")
            return batch

        monkeypatch.setattr(app.database, "fetch", gated_fetch)
        monkeypatch.setattr(reading, "read", gated_read)


async def test_a_head_that_is_told_during_a_read_is_not_skipped_to(
    app: App, relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # P1
    orders = app.container("orders", "/key", ranges=1)
    info = await orders.describe()
    done: set[str] = set()
    told: list[str] = []
    gates = Gates()
    host = App(settings=settings.load({**QUICK, "database_url": relevo_url}, environ={}))

    async def note(changes: list[Change[Any]]) -> None:
        done.update(change.id for change in changes)

    processor = host.container("orders").processor("kitchen", note, leases=2, **OPTIONS)
    processor.on_acquired(lambda token, _: told.append(token))
    async with host.host(name="a"):
        for warm in (a_key(low=True), a_key(low=False)):
            await orders.upsert({"id": f"warm-{warm}", "key": warm})
        await until(lambda: len(done) == 2 and len(told) == 2, "both leases work")
        gates.install(host, monkeypatch)
        await gates.both_idle.wait()
        gates.holding = {"first", "second", "read"}
        await orders.upsert({"id": "other half", "key": a_key(low=False)})
        await gates.reached["first"].wait()
        host.wakeups.send(f"feed:{info.id}")  # so that it is asked again at once
        gates.go_on["first"].set()
        await gates.reached["read"].wait()  # of the lower half: there was nothing
        await orders.upsert({"id": "late", "key": a_key(low=True)})
        if gates.reached["second"].is_set():  # asked for a lease that reads by now
            gates.go_on["second"].set()
            await gates.heard.wait()
        gates.go_on["second"].set()
        gates.go_on["read"].set()
        await until(lambda: "late" in done, "what came after the read is delivered")
