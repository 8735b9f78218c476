"""What is noted about calls: figures, spans, load; and what five failures in a row lead to."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App, settings
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases.model import IDLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from relevo.feed.model import Change
    from relevo.kernel.postgres import Database
    from relevo.store import Container, Store
    from tests.support.spans import Spans

pytestmark = pytest.mark.anyio
QUICK = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "drain_seconds": 5.0}
UNIT = "leases/orders/kitchen"


class Kitchen:
    """Hosts that serve one unit over a container of two ranges."""

    def __init__(self, url: str, store: Store, database: Database, stack: AsyncExitStack) -> None:
        self._url, self._stack, self.database = url, stack, database
        self.orders: Container[dict[str, Any]] = store.container("orders", "/city", ranges=2)
        self.apps: dict[str, App] = {}
        self.delivered: dict[str, list[str]] = {}

    async def serve(self, host: str, handler: Any = None, **options: Any) -> Processor:
        async def cook(changes: list[Change[Any]]) -> None:
            self.delivered.setdefault(host, []).extend(change.id for change in changes)

        app = App(settings=settings.load({**QUICK, "database_url": self._url}, environ={}))
        await self._stack.enter_async_context(app.host(name=host))
        self.apps[host] = app
        options = {"poll_interval": 0.05, "backoff": Backoff(first=0.01, longest=0.02), **options}
        processor = Processor("orders", "kitchen", handler or cook, **options)
        await processors.start(processor, app.database, app.wakeups, app.leases, app.supervisor)
        self._stack.push_async_callback(processors.stop, processor, 5.0)
        return processor

    async def owners(self) -> dict[str, str | None]:
        rows = await self.database.fetch(
            "select l.name, h.name as owner"
            " from relevo.lease l join relevo.unit u on u.id = l.unit_id"
            " left join relevo.host h on h.incarnation = l.owner where u.kind = 'feed'"
        )
        return {row["name"]: row["owner"] for row in rows}

    async def until_shared(self, *hosts: str) -> None:
        async def shared() -> bool:
            return set((await self.owners()).values()) == set(hosts)

        await self.until(shared, f"shared by {hosts}")

    async def until(self, condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
        give_up = time.monotonic() + 30
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            assert time.monotonic() < give_up, f"not within 30 s: {what}"
            await asyncio.sleep(0.01)

    def figure(self, host: str, name: str, **labels: str) -> float:
        return self.apps[host].metrics.registry.get_sample_value(f"relevo_{name}", labels) or 0.0


@pytest.fixture
async def kitchen(relevo_url: str, store: Store, database: Database) -> AsyncIterator[Kitchen]:
    async with AsyncExitStack() as stack:
        found = Kitchen(relevo_url, store, database, stack)
        await found.orders.describe()
        yield found


def order(number: int) -> dict[str, Any]:
    return {"id": str(number), "city": f"city {number}"}


async def test_calls_changes_failures_and_lag_are_counted(kitchen: Kitchen) -> None:  # 11
    failed: set[str] = set()

    async def cook(changes: list[Change[Any]]) -> None:
        for change in changes:
            if change.id == "3" and change.id not in failed:
                failed.add(change.id)
                raise RuntimeError("burnt")
        kitchen.delivered.setdefault("a", []).extend(change.id for change in changes)

    processor = await kitchen.serve("a", cook)
    await kitchen.until_shared("a")
    for number in range(10):
        await kitchen.orders.upsert(order(number))

    def drained() -> bool:
        lags = [kitchen.figure("a", "feed_lag_seconds", unit=UNIT, token=one.name)
                for one in processor.leases]  # fmt: skip
        return len(set(kitchen.delivered.get("a", ()))) == 10 and not any(lags)

    await kitchen.until(drained, "all are cooked and nothing is left")
    delivered = len(kitchen.delivered["a"])
    assert kitchen.figure("a", "feed_changes_total", unit=UNIT) == delivered
    batches = kitchen.figure("a", "feed_batches_total", unit=UNIT)
    assert 1 <= batches <= delivered
    calls = {"part": "feed", "handler": UNIT}
    assert kitchen.figure("a", "handler_runs_total", **calls, outcome="done") == batches
    assert kitchen.figure("a", "handler_runs_total", **calls, outcome="fail") == 1
    assert kitchen.figure("a", "handler_run_seconds_count", **calls) == batches + 1
    tokens = [one.name for one in processor.leases]
    await processors.stop(processor)
    page = kitchen.apps["a"].metrics.render().decode()
    assert not any(f'token="{token}"' for token in tokens if token in page)  # no longer its own


async def test_hand_offs_and_heartbeats_are_counted_and_rebalancing_loses_nothing(
    kitchen: Kitchen,
) -> None:  # U4
    await kitchen.serve("a")
    await kitchen.until_shared("a")
    await kitchen.serve("b")
    await kitchen.until_shared("a", "b")
    await kitchen.until(
        lambda: kitchen.figure("a", "lease_handoffs_total", unit=UNIT) == 1, "one was handed over"
    )
    await kitchen.until(
        lambda: kitchen.figure("a", "heartbeat_delay_seconds_count") >= 2, "two renewals"
    )
    assert kitchen.figure("a", "lease_lost_total") == 0


async def test_a_lease_that_is_cut_along_its_ranges_is_not_counted_as_lost(
    kitchen: Kitchen,
) -> None:  # 3.7
    processor = await kitchen.serve("a")
    released: list[tuple[str, str]] = []
    processor.on_released(lambda token, reason: released.append((token, reason)))
    await kitchen.until_shared("a")
    ranges = await kitchen.database.fetch("select id from relevo.feed_range order by id")
    await kitchen.orders.split(ranges[0]["id"])

    async def cut() -> bool:
        owners = await kitchen.owners()
        return len(owners) == 3 and len(processor.leases) == 3 and set(owners.values()) == {"a"}

    await kitchen.until(cut, "the lease of the range that was split is two leases")
    assert [reason for _, reason in released] == ["split"]
    beats = kitchen.figure("a", "heartbeat_delay_seconds_count")
    await kitchen.until(
        lambda: kitchen.figure("a", "heartbeat_delay_seconds_count") > beats + 1, "two heartbeats"
    )
    assert kitchen.figure("a", "lease_lost_total") == 0


async def test_five_failures_in_a_row_send_a_lease_to_another_host(kitchen: Kitchen) -> None:
    calls: dict[str, int] = {}

    async def burn(changes: list[Change[Any]]) -> None:  # 7.6: the fault is the host's
        key = changes[0].id
        calls[key] = calls.get(key, 0) + 1
        raise RuntimeError("no gas here")

    released: list[str] = []
    broken = await kitchen.serve("broken", burn)
    broken.on_released(lambda _, reason: released.append(reason))
    await kitchen.until_shared("broken")
    await kitchen.serve("works")
    await kitchen.until_shared("broken", "works")
    for number in range(20):
        await kitchen.orders.upsert(order(number))
    await kitchen.until(
        lambda: set(kitchen.delivered.get("works", ())) >= set(calls) != set(),
        "what failed here is done there",
    )
    assert "handler_error" in released
    assert max(calls.values()) >= 5


async def test_with_one_host_failures_go_on_here(kitchen: Kitchen) -> None:
    attempts = 0

    async def burn(_: list[Change[Any]]) -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 12:
            raise RuntimeError("no gas here")

    await kitchen.serve("a", burn)
    await kitchen.until_shared("a")
    await kitchen.orders.upsert(order(1))
    await kitchen.until(lambda: attempts == 12, "it is tried until it succeeds")
    assert set((await kitchen.owners()).values()) == {"a"}


async def test_a_handler_makes_its_lease_busy_while_it_runs(kitchen: Kitchen) -> None:  # 7.5
    begun, done = asyncio.Event(), asyncio.Event()

    async def slow(_: list[Change[Any]]) -> None:
        begun.set()
        await done.wait()

    processor = await kitchen.serve("a", slow, strategy="load")
    await kitchen.until_shared("a")
    await kitchen.orders.upsert(order(1))
    await begun.wait()
    busy = [one for one in processor.leases if one.meter.running]
    done.set()
    assert len(busy) == 1
    await kitchen.until(lambda: not busy[0].meter.running, "the call has ended")
    assert busy[0].meter._changes == 1
    assert busy[0].meter._bytes > 10
    assert [one.stored_load for one in processor.leases if one is not busy[0]] == [IDLE]
    strategy = await kitchen.database.fetchval(
        "select strategy from relevo.unit where kind = 'feed'"
    )
    assert strategy == "load"


async def test_every_call_has_a_span(kitchen: Kitchen, spans: Spans) -> None:  # 11
    fails = True

    async def once(_: list[Change[Any]]) -> None:
        nonlocal fails
        if fails:
            fails = False
            raise RuntimeError("burnt")

    await kitchen.serve("a", once)
    await kitchen.until_shared("a")
    await kitchen.orders.upsert(order(1))
    await kitchen.until(lambda: len(spans.ended) == 2, "two calls")
    assert {one.name for one in spans.ended} == {f"process {UNIT}"}
    told = [dict(one.attributes or {}) for one in spans.ended]
    assert [one.get("error.type") for one in told] == ["RuntimeError", None]
    assert [one["relevo.attempt"] for one in told] == [1, 2]
    assert {one["messaging.destination.name"] for one in told} == {UNIT}
