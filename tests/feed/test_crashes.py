"""Handlers that hang, stores that fail, and changes that kill the process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import DatabaseUnavailable, HandlerTimeout, LeaseStoreError, MonitoredError
from relevo.feed.processing import host as processors
from relevo.feed.processing.journal import SQL
from relevo.feed.reading import log as reading
from relevo.feed.service import FeedPart
from relevo.kernel.running import calls
from relevo.testing.cluster import Cluster
from tests.feed.diner import Diner
from tests.feed.test_processor import AT_ONCE
from tests.support.parts import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from relevo import App
    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.store import Store
    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture
async def diner(
    relevo_url: str, database: Database, store: Store, wakeups: Wakeups
) -> AsyncIterator[Diner]:
    async with AsyncExitStack() as stack:
        diner = Diner(relevo_url, store, database, stack)
        await diner.orders.describe()
        yield diner


async def test_a_call_that_stalls_is_told_and_degrades_health(diner: Diner) -> None:  # P11
    gate = asyncio.Event()

    async def slow(changes: list[Change[Any]]) -> None:
        if changes[0].id == "1":
            await gate.wait()
        await diner.cook(changes)

    await diner.write_one_by_one(1)
    processor = await diner.open(handler=slow, stall_after=0.05)
    await diner.until(lambda: bool(diner.heard("stall")), "the stall is told")
    assert processor.health().state == "degraded"
    assert "over 0.05 s" in processor.health().reasons[0]
    await diner.write(*range(10, 30))
    await diner.until(lambda: len(diner.delivered) >= 10, "other leases go on")
    gate.set()
    await diner.until_delivered(1, *range(10, 30))
    assert processor.health().ok
    await processors.stop(processor)
    assert processor.health().state == "failed"


async def test_a_call_that_takes_too_long_is_cancelled_and_has_failed(diner: Diner) -> None:  # 10.7
    ended: list[str] = []

    async def hang_once(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
        await diner.cook(changes)

    await diner.write_one_by_one(1)
    await diner.open(handler=hang_once, delegate_timeout=0.05)
    await diner.until_delivered(1)
    assert ended == ["cancelled"]
    assert [type(error) for error in diner.heard("error")] == [HandlerTimeout]


async def test_a_thread_that_hangs_is_abandoned_and_its_lease_runs_elsewhere(
    diner: Diner, monkeypatch: pytest.MonkeyPatch
) -> None:  # P11, U4
    monkeypatch.setattr(calls, "ABANDON_SECONDS", 0.05)
    gate, hung = threading.Event(), threading.Event()

    def hang(changes: list[Change[Any]]) -> None:
        if changes[0].id == "1":
            hung.set()
            gate.wait()
            return
        diner.delivered += [change.id for change in changes]

    processor = await diner.open(handler=hang, delegate_timeout=0.05)
    await diner.until(lambda: len(processor.leases) == 4, "a serves all")
    await diner.write_one_by_one(1)
    await diner.until(hung.is_set, "the thread hangs")
    taker = await diner.open("b", max_leases=4)
    try:
        await diner.until_delivered(1)
        await diner.write(*range(10, 30))
        await diner.until_delivered(*range(10, 30))
    finally:
        gate.set()
    assert "hang" in diner.heard("released")
    health = processor.health()
    assert health.state in ("degraded", "failed")
    assert "never ended" in " ".join(health.reasons)
    await processors.stop(processor)
    await processors.stop(taker)
    for lease in {token for _, token, _ in diner.told}:
        its = [event for event, token, _ in diner.told if token == lease]
        assert its.count("acquired") == its.count("released")


async def test_errors_are_told_apart_by_source(
    diner: Diner, monkeypatch: pytest.MonkeyPatch
) -> None:  # U5, U4
    processor = await diner.open()
    await diner.until(lambda: len(processor.leases) == 4, "all leases are held")
    failures = {"read": 1, "write": 1}
    read, write = reading.read, processor._now.database.write

    async def failing_read(*arguments: Any, **options: Any) -> Any:
        if failures["read"]:
            failures["read"] -= 1
            raise DatabaseUnavailable("no answer")
        return await read(*arguments, **options)

    async def failing_write(sql: str, *arguments: Any, **options: Any) -> Any:
        if sql == SQL.checkpoints and failures["write"]:
            failures["write"] -= 1
            raise DatabaseUnavailable("no answer")
        return await write(sql, *arguments, **options)

    monkeypatch.setattr(reading, "read", failing_read)
    monkeypatch.setattr(processor._now.database, "write", failing_write)
    await diner.write_one_by_one(1)
    await diner.until(lambda: len(diner.heard("error")) == 2, "both are told")
    await diner.until(lambda: diner.delivered.count("1") == 2, "delivered again, as the store says")
    assert [type(error) for error in diner.heard("error")] == [MonitoredError, LeaseStoreError]
    assert len(diner.heard("acquired")) == 4  # the same ownership all along
    assert await diner.database.fetchval("select sum(attempts) from relevo.feed_lease") == 0


async def deadly(app: App, record: Recorder) -> None:
    """Die, as by a bug in C, of one change."""

    async def handle(changes: list[Change[Any]]) -> None:
        record("called", ids=[change.id for change in changes])
        if any(change.id == "13" for change in changes):
            os.kill(os.getpid(), signal.SIGKILL)
        record("returned", ids=[change.id for change in changes])

    app.container("orders").processor(
        "kitchen", handle, start="beginning", poll_interval=0.25, backoff=AT_ONCE,
        dead_letter=os.environ["PROGRAM_LETTERS"] == "1",
    )  # fmt: skip
    await serve(app, FeedPart)


class Deaths:
    """Starts a host again each time it dies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0

    def returned(self) -> set[str]:
        return {one for record in self.cluster.records("returned") for one in record["ids"]}

    async def live_until(self, condition: Any, what: str) -> None:
        node = await self.cluster.start("a", wait=False)

        async def reached() -> bool:
            nonlocal node
            if node.process.poll() is not None:
                assert node.process.returncode == -signal.SIGKILL, node.log
                self.count += 1
                node = await self.cluster.start("a", wait=False)
            return bool(await condition())

        await self.cluster.until(reached, what, timeout=90.0)


@pytest.mark.parametrize("letters", [True, False])
async def test_a_change_that_kills_its_process_is_isolated(
    diner: Diner, relevo_url: str, tmp_path: Path, letters: bool
) -> None:  # P10
    await diner.write_one_by_one(*range(20))
    await diner.write(*range(100, 130))
    others = {str(n) for n in (*range(20), *range(100, 130)) if n != 13}
    environment = {"PROGRAM_LETTERS": "1" if letters else "0"}
    quick = {"lease_expiration": 3.0, "lease_renew": 0.5, "lease_acquire": 0.5, "pool_size": 4}
    async with Cluster(
        relevo_url, "tests.feed.test_crashes:deadly", tmp_path, settings=quick,
        environment=environment,
    ) as cluster:  # fmt: skip
        deaths = Deaths(cluster)

        async def given_up() -> bool:
            return bool(await diner.database.fetch("select from relevo.dead_letter")) and (
                others <= deaths.returned()
            )

        async def blocked() -> bool:
            return bool(
                await diner.database.fetch("select from relevo.lease where state = 'blocked'")
            )

        await deaths.live_until(given_up if letters else blocked, "the change is out of the way")
    if letters:
        assert deaths.count == 3
        found = await diner.letters.list()
        assert [(one.item_id, one.reason, one.attempts) for one in found] == [("13", "crash", 3)]
    else:
        assert deaths.count == 5
        assert {str(n) for n in range(13)} <= deaths.returned()
