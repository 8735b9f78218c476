"""Exclusive writers: each event once, in order, each caller answered once and not before."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relevo import App
from relevo.errors import Conflict, DeadlineExceeded, InvalidValue, Overloaded
from relevo.governance.errors import Rejected
from relevo.governance.sinks import CallableSink, CsvSink, FileSink
from relevo.governance.writers import WriteReceipt
from relevo.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.testing.recorder import Recorder

pytestmark = pytest.mark.anyio
FOLDER = "WRITER_FOLDER"
TASKS: set[asyncio.Task[None]] = set()


class Memory:
    """A sink that can be held, and that fails as it is told."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.errors: list[Exception] = []
        self.refused: set[Any] = set()
        self.began = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, _key: str, batch: Sequence[Any], _fence: Any, _seq: int) -> None:
        self.began.set()
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        if bad := tuple(index for index, one in enumerate(batch) if one in self.refused):
            raise Rejected("no", indexes=bad)
        self.batches.append(list(batch))

    @property
    def events(self) -> list[Any]:
        return [event for batch in self.batches for event in batch]


async def test_ten_thousand_callers_wait_for_one_file(relevo_url: str, tmp_path: Path) -> None:
    app = App(relevo_url)
    sink = CsvSink(tmp_path / "{key}.csv", ["caller", "value"])
    writer = app.governance.writer("events", sink=sink)
    async with app, app.host():
        receipts = await asyncio.gather(
            *(writer["type-7"].write({"caller": one, "value": "x"}) for one in range(10_000))
        )
    lines = (tmp_path / "type-7.csv").read_text().splitlines()[1:]
    numbers = [one.number or 0 for one in receipts]
    assert sorted(numbers) == list(range(1, 10_001)), len(lines)  # I41
    assert [lines[at - 1] for at in numbers] == [f"{one},x" for one in range(10_000)]  # I43


async def test_no_answer_before_the_sink_has_the_event(relevo_url: str) -> None:
    app, memory = App(relevo_url), Memory()
    writer = app.governance.writer("events", sink=CallableSink(memory.write), max_delay=0.01)
    memory.open.clear()
    async with app, app.host():
        first = asyncio.create_task(writer["a"].write(1, id="e1"))
        await memory.began.wait()
        others = [asyncio.create_task(writer["a"].write(one)) for one in (2, 3)]
        again = asyncio.create_task(writer["a"].write(1, id="e1"))
        flush = asyncio.create_task(writer["a"].flush())
        await asyncio.sleep(0.05)  # time in which an early answer would come
        assert not any(one.done() for one in (first, again, flush, *others))  # I42
        memory.open.set()
        assert (await first).number == (await again).number == 1
        await flush
        assert memory.batches == [[1], [2, 3]]
        assert [(await one).number for one in others] == [2, 3]
        assert (await writer["a"].write(1, id="e1")).number == 1  # written lately
        assert memory.events == [1, 2, 3]


async def test_bad_events_fail_alone_and_errors_are_repeated(relevo_url: str) -> None:
    app, memory = App(relevo_url), Memory()
    writer = app.governance.writer("events", sink=CallableSink(memory.write), max_batch=3)
    memory.errors, memory.refused = [OSError("the disk is full")], {"y"}
    async with app, app.host():
        answers = await asyncio.gather(
            *(writer["a"].write(one) for one in "xyz"), return_exceptions=True
        )
        assert isinstance(answers[1], Rejected)
        assert sorted(memory.events) == ["x", "z"]
        with pytest.raises(InvalidValue):
            await writer["a"].write(object())
        with pytest.raises(Conflict):
            app.governance.writer("events", sink=CallableSink(memory.write), max_batch=4)


async def test_events_of_callers_that_write_together_share_a_call(relevo_url: str) -> None:
    app, memory = App(relevo_url), Memory()
    writer = app.governance.writer("events", sink=CallableSink(memory.write), max_buffer=1_000)["a"]
    async with app, app.host():
        receipts = await asyncio.gather(*(writer.write(one) for one in range(900)))
        assert [one.number for one in receipts] == list(range(1, 901))  # I43
        assert writer._group.statements == 2
        memory.open.clear()
        memory.began.clear()
        held = [asyncio.create_task(writer.write(one, id=str(one))) for one in range(900, 1_905)]
        late = asyncio.create_task(writer.write("late", timeout=0.01, id="900"))
        unsent = asyncio.create_task(writer.write("canceled before it was sent"))
        await asyncio.sleep(0)
        unsent.cancel()
        await memory.began.wait()
        held[1].cancel()  # it is accepted, and so are its neighbours
        with pytest.raises(DeadlineExceeded):
            await late
        await writer.rejected()  # a call behind them: all were accepted
        memory.open.set()
        answers = await asyncio.gather(*held, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
        assert sum(isinstance(one, Overloaded) for one in answers) == 5  # I41
        assert [one.number for one in answers[2:1_000] if isinstance(one, WriteReceipt)] == list(
            range(903, 1_901)
        )
        assert memory.events == list(range(1_900))
        assert (await writer.write("again", id="901")).number == 902  # written although canceled


async def test_stored_events_are_written_after_their_answer(relevo_url: str) -> None:
    app, memory = App(relevo_url), Memory()
    sink = CallableSink(memory.write)
    writer = app.governance.writer("events", sink=sink, ack="buffer", max_delay=0.01, max_batch=2)
    memory.open.clear()
    async with app, app.host():
        for one in range(3):
            assert (await writer["a"].write(one)).number is None  # the sink is held
        memory.refused = {1}
        memory.open.set()
        await writer["a"].flush()
        assert memory.events == [0, 2]
        assert [one.event for one in (await writer["a"].rejected()).values()] == [1]
        stored = await app.database.fetchval("select count(*) from relevo.actor_entry")
        assert stored == 1


async def test_a_drained_writer_writes_the_rest(relevo_url: str, tmp_path: Path) -> None:
    app = App(relevo_url)
    sink = FileSink(tmp_path / "{key}.log")
    writer = app.governance.writer("events", sink=sink, ack="buffer", max_delay=60)
    async with app, app.host():
        await writer["a"].write("one")
    assert (tmp_path / "a.log").read_text() == "one\n"


def define(app: App) -> Any:
    """The writer of the host processes of these tests."""
    sink = FileSink(Path(os.environ[FOLDER]) / "{key}.log")
    return app.governance.writer("events", sink=sink, ack="buffer", max_delay=0.05)


async def program(app: App, record: Recorder) -> None:
    """The first host holds the one permit and writes; the second only wants the permit."""
    writer, pool = define(app), app.governance.pool("erp", size=1)

    async def work() -> None:
        async with pool.lease() as permit:
            record("permit", number=permit.fence.number)
            if app.settings.host_name == "a":
                for number in itertools.count():
                    await writer["a"].write(str(number), id=str(number))
                    record("accepted", number=number)

    TASKS.add(asyncio.create_task(work()))


async def test_a_killed_host_loses_no_event_and_no_permit(relevo_url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    settings = {"lease_expiration": 3, "lease_renew": 0.5, "lease_acquire": 0.5}
    async with Cluster(
        relevo_url, f"{__name__}:program", tmp_path, settings=settings,
        environment={FOLDER: str(tmp_path)},
    ) as cluster:  # fmt: skip
        first = await cluster.start("a")
        await cluster.until(lambda: len(first.records("accepted")) >= 30, "events")
        first.kill()
        accepted = {one["number"] for one in first.records("accepted")}
        second = await cluster.start("b")
        await cluster.until(lambda: bool(second.records("permit")), "the permit")
        assert second.records("permit")[0]["number"] == 2  # I44

        def written() -> list[int]:
            return [int(line) for line in file.read_text().splitlines()]

        await cluster.until(lambda: accepted <= set(written()), "all events")  # I42
        assert written() == sorted(set(written()))  # I43, and none twice
