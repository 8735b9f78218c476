"""The next batch is read while the handler runs, and no batch is read for nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from relevo.errors import InvalidValue
from relevo.feed.processing import host as processors
from relevo.feed.processing.processor import Processor
from relevo.feed.reading import log as reading
from tests.feed.test_processor import Kitchen, kitchen

if TYPE_CHECKING:
    from relevo.feed.model import Change
    from relevo.feed.processing.context import ChangeContext
    from relevo.feed.reading.log import Batch

__all__ = ["kitchen"]
pytestmark = pytest.mark.anyio


class Reads:
    """Every batch that is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[Batch] = []
        self._read = reading.read
        monkeypatch.setattr(reading, "read", self.read)

    async def read(self, *arguments: Any, **options: Any) -> Batch:
        batch = await self._read(*arguments, **options)
        self.batches.append(batch)
        return batch

    @property
    def changes(self) -> int:
        return sum(len(batch.changes) for batch in self.batches)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


async def in_one_key(kitchen: Kitchen, *numbers: int) -> None:
    for n in numbers:
        await kitchen.orders.upsert({"id": str(n), "city": "x"})


@pytest.mark.parametrize(("prefetch", "ahead"), [(1, 2), (3, 4)])
async def test_batches_are_read_ahead_while_the_handler_runs(
    kitchen: Kitchen, reads: Reads, prefetch: int, ahead: int
) -> None:  # 8.4
    await in_one_key(kitchen, *range(8))
    gate, calls = asyncio.Event(), 0

    async def slow(changes: list[Change[Any]]) -> None:
        nonlocal calls
        calls += 1
        await gate.wait()
        await kitchen.cook(changes)

    await kitchen.serve(handler=slow, start="beginning", max_items=1, prefetch=prefetch)
    await kitchen.until(lambda: reads.changes == ahead, "read ahead")
    assert calls == 1
    gate.set()
    await kitchen.until_delivered(*range(8))
    assert kitchen.delivered == [str(n) for n in range(8)]
    assert reads.changes == 8


async def test_without_read_ahead_nothing_is_read_while_the_handler_runs(
    kitchen: Kitchen, reads: Reads
) -> None:
    await in_one_key(kitchen, *range(6))
    read: list[int] = []

    async def look(changes: list[Change[Any]]) -> None:
        await kitchen.database.fetchval("select 1")  # time enough for another read
        read.append(reads.changes)
        await kitchen.cook(changes)

    await kitchen.serve(handler=look, start="beginning", max_items=2, prefetch=0)
    await kitchen.until_delivered(*range(6))
    assert read == [2, 4, 6]


async def test_a_batch_that_shows_the_end_is_not_followed_by_an_empty_read(
    kitchen: Kitchen, reads: Reads
) -> None:  # P4
    processor = await kitchen.serve()
    await kitchen.until(lambda: len(reads.batches) == 4, "each range is read once")
    assert len(processor.leases) == 4
    for n in range(5):
        await in_one_key(kitchen, n)
        await kitchen.until_delivered(n)
    assert [len(batch.changes) for batch in reads.batches[4:]] == [1] * 5


async def test_a_change_during_a_call_is_found_at_once_after_it(kitchen: Kitchen) -> None:
    # The wake-up comes while the lease reads or works, and is not lost: the next poll is far.
    async def write_more(changes: list[Change[Any]]) -> None:
        await kitchen.cook(changes)
        last = int(changes[-1].id)
        if last < 20:
            await in_one_key(kitchen, last + 1)

    await kitchen.serve(handler=write_more, poll_interval=300.0, prefetch=0)
    await in_one_key(kitchen, 0)
    await kitchen.until_delivered(*range(20))


@pytest.mark.parametrize("lanes", [1, 4])
async def test_what_has_changed_while_it_failed_comes_only_as_it_is_now(
    kitchen: Kitchen, lanes: int
) -> None:  # 8.6, F2
    seen: list[tuple[str, int]] = []
    failed = asyncio.Event()

    async def picky(changes: list[Change[Any]]) -> None:
        seen.extend((change.id, change.item["n"]) for change in changes)
        if any(change.item["n"] == 1 for change in changes):
            failed.set()
            raise ValueError("not this version")
        await kitchen.cook(changes)

    await kitchen.orders.upsert({"id": "1", "city": "x", "n": 1})
    await kitchen.orders.upsert({"id": "2", "city": "x", "n": 2})
    await kitchen.serve(handler=picky, start="beginning", max_items=1, lanes=lanes)
    await failed.wait()
    await kitchen.orders.upsert({"id": "1", "city": "x", "n": 3})
    await kitchen.until_delivered(1, 2)
    assert kitchen.delivered == ["2", "1"]
    assert seen[-1] == ("1", 3)


async def test_a_hand_over_delivers_what_was_read_ahead_once(kitchen: Kitchen) -> None:  # B4
    entered = asyncio.Event()

    async def slow(ctx: ChangeContext, changes: list[Change[Any]]) -> None:
        entered.set()
        await kitchen.until(lambda: ctx.handoff_requested, "the lease is asked for")
        await kitchen.cook(changes)

    await in_one_key(kitchen, *range(4))
    processor = await kitchen.serve(handler=slow, start="beginning", max_items=1, prefetch=3)
    await entered.wait()
    await processors.stop(processor)
    assert kitchen.delivered == ["0"]
    await kitchen.serve("b", max_items=1)
    await kitchen.until_delivered(*range(4))
    assert kitchen.delivered == ["0", "1", "2", "3"]


async def test_numbers_that_do_not_fit_are_refused_by_name() -> None:
    async def handler(changes: Any) -> None: ...

    for options, word in [
        ({"prefetch": -1}, "prefetch"),
        ({"lanes": 0}, "lanes"),
        ({"lane_window": 0}, "lane_window"),
        ({"max_items": 0}, "max_items"),
    ]:
        with pytest.raises(InvalidValue, match=word):
            Processor("orders", "kitchen", handler, **options)  # type: ignore[arg-type]
