"""What comes in between while calls run: withdrawn requests, failing reads, ends of runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from relevo.errors import DatabaseUnavailable, LeaseStoreError, OutcomeUnknown
from relevo.feed.processing import delivery, read_ahead
from relevo.feed.processing.host import RunningProcessor
from relevo.feed.processing.ledger import ChangeLedger
from relevo.feed.processing.pacing import CheckpointEvery, Pace
from relevo.feed.processing.progress import LeaseProgress
from relevo.feed.reading import bounds
from relevo.feed.reading import log as reading
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.feed.processing.processor import Processor
    from relevo.feed.reading.log import Batch
    from relevo.kernel.postgres import Transaction

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


class Gate:
    """A handler that stays in its first call until the test lets it go on."""

    def __init__(self, kitchen: Kitchen) -> None:
        self._kitchen = kitchen
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.token = ""
        self.calls: list[list[str]] = []

    async def handle(self, ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        self.token = ctx.lease_token
        self.calls.append([change.id for change in changes])
        self.entered.set()
        await self.opened.wait()
        await self._kitchen.cook(changes)


class Reads:
    """Lets one read fail, as a database that is away does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = reading.read
        self.to_fail = False
        self.failed = asyncio.Event()
        monkeypatch.setattr(reading, "read", self.read)

    async def read(self, *arguments: Any, **options: Any) -> Batch:
        if self.to_fail:
            self.to_fail = False
            self.failed.set()
            raise DatabaseUnavailable("away")
        return await self._read(*arguments, **options)


async def in_one_key(kitchen: Kitchen, *numbers: int, **more: Any) -> None:
    for n in numbers:
        await kitchen.orders.upsert({"id": str(n), "city": "x", **more})


async def lsns(kitchen: Kitchen) -> dict[str, int]:
    rows = await kitchen.database.fetch("select id, lsn from relevo.item")
    return {row["id"]: row["lsn"] for row in rows}


async def ends(kitchen: Kitchen, lsn: int) -> dict[int, int]:
    return {one.id: lsn for one in (await kitchen.orders.ranges()).open}


async def until_stored(kitchen: Kitchen, lsn: int) -> None:
    async with asyncio.timeout(30):
        while True:
            rows = await kitchen.database.fetch("select position from relevo.lease")
            found = [msgspec.json.decode(row["position"]) for row in rows]
            if any(lsn in position.values() for position in found if isinstance(position, dict)):
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_hand_over_that_is_withdrawn_lets_the_owner_go_on(
    kitchen: Kitchen, lanes: int
) -> None:  # 7.4
    gate = Gate(kitchen)
    processor = await kitchen.serve(handler=gate.handle, lanes=lanes)
    await in_one_key(kitchen, 0)
    await gate.entered.wait()
    (lease,) = (one for one in processor.leases if one.name == gate.token)
    lease.ask_to_stop("handoff")
    for _ in range(3):
        await kitchen.database.fetchval("select 1")  # time enough to hear of it
    lease.recall()
    gate.opened.set()
    await kitchen.until_delivered(0)
    await in_one_key(kitchen, 1, 2)
    await kitchen.until_delivered(1, 2)
    assert kitchen.delivered == ["0", "1", "2"]
    assert lease in processor.leases


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_read_ahead_that_fails_cuts_no_call_off(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:  # 10.2, P2
    reads, gate = Reads(monkeypatch), Gate(kitchen)
    processor = await kitchen.serve(handler=gate.handle, max_items=1, lanes=lanes)
    told: list[Any] = []
    processor.on_error(lambda token, error: told.append(error))
    await in_one_key(kitchen, 0)
    await gate.entered.wait()
    reads.to_fail = True
    await in_one_key(kitchen, 1)
    await reads.failed.wait()
    for _ in range(3):
        await kitchen.database.fetchval("select 1")  # time enough to cut it off
    gate.opened.set()
    await kitchen.until_delivered(0, 1)
    assert gate.calls == [["0"], ["1"]]
    assert len(told) == 1


async def test_a_read_that_fails_repeats_nothing_that_was_finished(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # 9.1
    reads = Reads(monkeypatch)
    await kitchen.serve(checkpoint_every=CheckpointEvery(batches=100))
    await in_one_key(kitchen, 0)
    await kitchen.until_delivered(0)
    reads.to_fail = True
    await in_one_key(kitchen, 1)
    await reads.failed.wait()
    await kitchen.until_delivered(1)
    assert kitchen.delivered == ["0", "1"]


async def test_a_run_that_ends_within_a_batch_that_failed_leaves_the_rest_of_it(
    kitchen: Kitchen,
) -> None:  # P1, 12.4
    failed = asyncio.Event()

    async def broken(changes: list[Change[Any]]) -> None:
        if len(changes) == 4:
            failed.set()
        raise ValueError("no")

    await in_one_key(kitchen, *range(4))
    await kitchen.serve("a", handler=broken, start="beginning")
    await failed.wait()
    await kitchen.hosts["a"].aclose()
    processor = await kitchen.serve("b", until=await ends(kitchen, (await lsns(kitchen))["1"]))
    await processor.completed()
    await kitchen.hosts["b"].aclose()
    assert kitchen.delivered == ["0", "1"]
    await kitchen.serve("c")
    await kitchen.until_delivered(*range(4))
    assert kitchen.delivered == ["0", "1", "2", "3"]


async def test_a_run_never_stands_ahead_of_what_is_committed(kitchen: Kitchen) -> None:  # P1, F6
    await in_one_key(kitchen, 0)
    ahead = (await lsns(kitchen))["0"] + 1_000
    processor = await kitchen.serve("a", start="beginning", until=await ends(kitchen, ahead))
    await processor.completed()
    await kitchen.hosts["a"].aclose()
    await in_one_key(kitchen, 1)
    await kitchen.serve("b")
    await kitchen.until_delivered(0, 1)
    assert kitchen.delivered == ["0", "1"]


async def test_a_lease_is_not_at_the_end_of_a_run_because_its_range_was_split(
    kitchen: Kitchen,
) -> None:  # 12.4, F9
    await kitchen.serve("a", start="beginning")
    await kitchen.hosts["a"].aclose()
    await in_one_key(kitchen, 0)
    for one in list((await kitchen.orders.ranges()).open):
        await kitchen.orders.split(one.id)
    unit_id = await kitchen.database.fetchval("select unit_id from relevo.feed_unit")
    end = await ends(kitchen, (await lsns(kitchen))["0"])
    assert not await bounds.reached(kitchen.database, unit_id, "orders", end)


async def test_progress_without_calls_is_stored_before_a_long_rest(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # 2.7, 9.7
    monkeypatch.setattr(read_ahead, "QUIET_SECONDS", 0.5)
    await kitchen.serve(filter=[("dish", "=", "pizza")])
    await in_one_key(kitchen, 0, dish="pizza")
    await kitchen.until_delivered(0)
    await in_one_key(kitchen, 1, dish="soup")
    await until_stored(kitchen, (await lsns(kitchen))["1"])


async def test_the_position_follows_transactions_before_a_long_rest(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # 9.5, 9.7
    monkeypatch.setattr(read_ahead, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(delivery, "LAG_SECONDS", 1e9)

    async def handle(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction():
            await kitchen.cook(changes)

    await kitchen.serve(handler=handle, lanes=4)
    await in_one_key(kitchen, 0)
    await kitchen.until_delivered(0)
    await in_one_key(kitchen, 1)
    await kitchen.until_delivered(1)
    await until_stored(kitchen, (await lsns(kitchen))["1"])
    assert kitchen.delivered == ["0", "1"]


class Commits:
    """Lets the answer to the first commit of a call be lost, or be waited for in vain."""

    def __init__(self, processor: Processor, *, lose: bool) -> None:
        self._transaction = processor._now.database.transaction
        self._lose = lose
        self.to_upset = True
        processor._now.database.transaction = self.transaction  # type: ignore[method-assign]

    @asynccontextmanager
    async def transaction(self, *, own: bool = False) -> AsyncIterator[Transaction]:
        async with self._transaction(own=own) as tx:
            yield tx
        if self.to_upset:
            self.to_upset = False
            if self._lose:
                raise OutcomeUnknown("the connection was lost at the commit")
            await asyncio.Event().wait()


@pytest.mark.parametrize("lose", [True, False])
@pytest.mark.parametrize("lanes", [1, pytest.param(4, marks=pytest.mark.soak)])
async def test_a_commit_whose_answer_does_not_come_counts_if_it_happened(
    kitchen: Kitchen, lanes: int, lose: bool
) -> None:  # P5
    async def handle(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into public.effect values ($1)", changes[0].id)

    await kitchen.database.write("create table public.effect (id text)")
    processor = await kitchen.serve(handler=handle, lanes=lanes, delegate_timeout=1.0)
    told: list[Any] = []
    processor.on_error(lambda token, error: told.append(error))
    Commits(processor, lose=lose)
    await in_one_key(kitchen, 0)
    await kitchen.until(lambda: bool(told), "it is told")
    await in_one_key(kitchen, 1)
    await until_stored(kitchen, (await lsns(kitchen))["1"])
    rows = await kitchen.database.fetch("select id from public.effect order by id")
    assert [row["id"] for row in rows] == ["0", "1"]
    assert [type(error) for error in told] == [LeaseStoreError]  # U5


async def test_nothing_is_stored_while_it_is_not_known_what_is() -> None:  # P5, L3
    class Silent:
        stored = 0

        async def checkpoint(self, *_: Any) -> None:
            self.stored += 1

    journal: Any = Silent()
    progress = LeaseProgress(journal, Pace(), lambda: None)
    progress.ledger = ChangeLedger({1: 0, 2: 0})
    progress.spread()
    change: Any = SimpleNamespace(lsn=5, ordinal=0, ts=None, raw="")
    progress.lanes.add(1, [change], 5)
    run = progress.lanes.take(0)
    assert run is not None
    run.out = True
    moved = await progress.confirm_in(None, run)  # type: ignore[arg-type]
    progress.ledger.skip(2, 7)  # of another range, nothing was wanted
    waiting = asyncio.create_task(progress.flush())
    await asyncio.sleep(0)
    progress.undone(moved, in_doubt=True)
    with pytest.raises(LeaseStoreError):
        await waiting
    assert journal.stored == 1


async def test_a_host_that_is_fenced_before_a_call_does_not_make_it(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:  # L5
    fenced: list[str] = []
    calls: list[tuple[bool, int]] = []

    async def admit(_: RunningProcessor, lease: Any, changes: Any) -> Any:
        if not fenced:
            fenced.append(lease.name)
            lease._deadline.renew(float("-inf"))  # until the next heartbeat
        return list(changes)

    async def handle(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        calls.append((ctx.canceled, ctx.attempt))
        await kitchen.cook(changes)

    monkeypatch.setattr(RunningProcessor, "admit", admit)
    await kitchen.serve(handler=handle)
    await in_one_key(kitchen, 0)
    await kitchen.until_delivered(0)
    assert calls == [(False, 1)]
