"""What an idle unit costs: no lease row is written, and statements do not grow with leases."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.kernel.leases import loops
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.pool.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.kernel.postgres import Database
    from relevo.testing.clock import Clock

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 60.0, "lease_renew": 0.5, "lease_acquire": 0.5, "drain_seconds": 5.0}
"""Hosts live longer than the clock is moved at once: a renewal that waits meanwhile is good."""
UNIT = "leases/orders/kitchen"
ROWS = """
select 'lease' as kind, l.id, l.xmin::text, l.ctid::text from relevo.lease l
union all select 'feed_lease', f.lease_id, f.xmin::text, f.ctid::text from relevo.feed_lease f
order by 1, 2
"""
"""A row that is written, even with what it had, has another place and another transaction."""

ELSEWHERE = {
    query.sql for part in ("router", "jobs", "messaging")
    for query in catalog.load(f"relevo.{part}").queries.values()
}  # fmt: skip
"""What leases do not cost: the own loops of other parts."""
DRIVER = ("typeinfo_tree", "current_setting('jit')")
"""What the driver asks about types, once per connection."""


async def until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, f"not within 60 s: {what}"
        await asyncio.sleep(0.01)


async def serve(
    stack: AsyncExitStack, url: str, name: str, told: dict[str, Any], **options: Any
) -> App:
    app = App(settings=settings.load({**told, "database_url": url}, environ={}))
    orders = app.container("orders", "/city", ranges=4)

    @orders.on_changes("kitchen", **options)
    async def cook(_: list[Any]) -> None: ...

    await stack.enter_async_context(app.host(name=name))
    return app


def beats(app: App) -> int:
    return app.leases.life.heart.beats


def statements(app: App, statement: str, unit: str = "all") -> float:
    labels = {"unit": unit, "statement": statement}
    return app.metrics.registry.get_sample_value("relevo_lease_statements_total", labels) or 0.0


def held(app: App) -> int:
    return sum(one.unit == UNIT and not one.stopping.is_set() for one in app.leases.held)


@pytest.mark.parametrize("strategy", ["equal", "load"])
async def test_an_idle_balanced_unit_writes_no_lease_rows(
    relevo_url: str, database: Database, clock: Clock, strategy: str
) -> None:  # P12
    async with AsyncExitStack() as stack:
        apps = [
            await serve(stack, relevo_url, name, QUICK, leases=8, strategy=strategy)
            for name in ("a", "b")
        ]
        await until(lambda: [held(app) for app in apps] == [4, 4], "balanced")

        async def rounds(count: int) -> None:
            """So many heartbeats and ticks of every host."""
            seen = [(beats(app), statements(app, "tick")) for app in apps]
            await until(
                lambda: all(
                    beats(app) >= was + count and statements(app, "tick") >= ticks + count
                    for app, (was, ticks) in zip(apps, seen, strict=True)
                ),
                f"{count} heartbeats and ticks",
            )

        await rounds(2)  # what starting left to be written is written by then
        before = [tuple(row) for row in await database.fetch(ROWS)]
        for _ in range(4):
            await clock.advance(30.0)  # past every window, rest and quiet time
            await rounds(2)
        assert [tuple(row) for row in await database.fetch(ROWS)] == before
        for app in apps:
            assert statements(app, "load") == 0
            assert statements(app, "heartbeat") >= 10


async def test_the_cost_of_a_unit_on_the_lease_store_is_shown_by_kind_of_statement(
    relevo_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        app = await serve(stack, relevo_url, "a", QUICK, poll_interval=0.05)
        await until(lambda: held(app) == 4, "it holds all leases")
        before = statements(app, "checkpoint", UNIT)
        await app.container("orders").upsert({"id": "1", "city": "Vigo"})
        await until(lambda: statements(app, "checkpoint", UNIT) > before, "a checkpoint")
        assert statements(app, "balance", UNIT) >= 3  # the lock, the read, the take
        await until(lambda: statements(app, "heartbeat") > 0, "a heartbeat")
        page = app.measure().decode()
        for kind in ("heartbeat", "holdings", "tick"):
            assert f'relevo_lease_statements_total{{statement="{kind}",unit="all"}}' in page


async def test_500_idle_leases_cost_at_most_five_statements_per_second_and_host(
    relevo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # L7; counted over heartbeats, which come every 3 s, with all settings as they are
    counted: Counter[str] = Counter()
    connect = Endpoint.connect

    async def watched(endpoint: Endpoint, **options: Any) -> Any:
        connection = await connect(endpoint, **options)
        connection.add_query_logger(lambda record: counted.update([record.query]))
        return connection

    monkeypatch.setattr(Endpoint, "connect", watched)
    monkeypatch.setattr(loops, "FIRST_SECONDS", 0.0)  # what a new leader does once is no cost
    async with AsyncExitStack() as stack:
        app = await serve(stack, relevo_url, "a", {}, leases=500)
        (processor,) = app.feeds.processors.values()
        await until(lambda: len(processor._now.poller._waiting) == 512, "all leases are idle")
        first, rounds = beats(app), 2
        await until(lambda: beats(app) > first, "a heartbeat")
        counted.clear()
        first = beats(app)
        await until(lambda: beats(app) >= first + rounds, f"{rounds} heartbeats")
        found = Counter({
            sql: n for sql, n in counted.items()
            if sql not in ELSEWHERE and not any(part in sql for part in DRIVER)
        })  # fmt: skip
    seconds = rounds * app.settings.lease_renew
    assert sum(found.values()) <= 5 * seconds, found
    assert sum(found.values()) >= rounds
