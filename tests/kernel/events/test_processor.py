"""The ordinary feed processor reads the event log: shared by leases, in order, at least once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import FeedExpired, InvalidValue
from tests.kernel.events.conftest import NOTED, noted

if TYPE_CHECKING:
    from relevo import App
    from relevo.kernel.events import Event, Recorded
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio


async def append(app: App, *events: Event, **options: Any) -> None:
    async with app.database.transaction() as tx:
        await app.events.append(tx, events, **options)
    app.events.sent()


async def test_a_processor_gets_every_event_in_the_order_of_its_subject(app: App) -> None:
    app.events.catalogue.register(NOTED)
    seen: list[Recorded] = []
    done = asyncio.Event()

    @app.events.on_events("audit", start="beginning", max_items=3)
    async def audit(events: list[Recorded]) -> None:
        seen.extend(events)
        if len(seen) == 60:
            done.set()

    await append(app, *(noted(n, f"thing/{n % 4}") for n in range(20)))
    async with app.host():
        await append(app, *(noted(n, f"thing/{n % 4}") for n in range(20, 40)))
        await append(app, *(noted(n, "job/1") for n in range(20)), by="pipeline", pipeline=2)
        await asyncio.wait_for(done.wait(), 60)
    for subject, versions in {"thing/1": range(1, 40, 4), "job/1": range(20)}.items():
        assert [one.version for one in seen if one.subject == subject] == list(versions)
    assert len({one.id for one in seen}) == 60


async def test_effects_and_position_commit_together(app: App) -> None:
    app.events.catalogue.register(NOTED)
    await app.database.write("create table effect (id text primary key)")
    done = asyncio.Event()

    @app.events.on_events("effects", start="beginning")
    async def effects(ctx: Any, events: list[Recorded]) -> None:
        async with ctx.transaction() as tx:
            await tx.executemany("insert into effect values ($1)", [(one.id,) for one in events])
            if ctx.attempt == 1:
                raise ZeroDivisionError
        done.set()

    await append(app, *(noted(n) for n in range(5)))
    async with app.host():
        await asyncio.wait_for(done.wait(), 60)
    assert await app.database.fetchval("select count(*) from effect") == 5


async def test_a_unit_that_fell_behind_the_log_is_told(app: App, clock: Clock) -> None:
    app.events.catalogue.register(NOTED)
    told: asyncio.Queue[Exception] = asyncio.Queue()
    seen = asyncio.Event()

    @app.events.on_events("late", start="beginning")
    async def late(events: list[Recorded]) -> None:
        seen.set()

    @late.on_error
    def heard(_token: str, error: Exception) -> None:
        told.put_nowait(error)

    await append(app, noted(1))
    async with app.host():
        await asyncio.wait_for(seen.wait(), 60)
    await append(app, noted(2))
    await clock.advance(timedelta(days=9))
    await app.events.trim()
    await append(app, noted(3))
    async with app.host():
        error = await asyncio.wait_for(told.get(), 60)
    assert isinstance(error, FeedExpired)


async def test_the_log_decides_mode_and_leases(app: App) -> None:
    with pytest.raises(InvalidValue, match="leases"):
        app.events.on_events("audit", leases=64)  # type: ignore[call-arg]
