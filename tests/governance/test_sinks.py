"""File sinks: each batch once or not at all, wherever the process is killed."""

from __future__ import annotations

import asyncio
import csv
import fcntl
import io
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from relevo.errors import Conflict, InvalidValue
from relevo.governance.core.names import FILE_NAME_BYTES_MAX, file_name
from relevo.governance.errors import Rejected, StaleSink
from relevo.governance.sinks import CallableSink, CsvSink, FileSink, csv_cell
from relevo.testing.faults import FaultBoard

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from relevo.governance.sinks import FileSink

class Fence:
    epoch = int(sys.argv[2])

async def main():
    sink = FileSink(sys.argv[1] + "/{key}.log").for_key()
    last = await sink.open("orders", Fence)
    for first in range(last + 1, last + 40, 4):
        await sink.write([f"event {n}" for n in range(first, first + 4)], Fence, first)
        print(first + 3, flush=True)

asyncio.run(main())
"""
POINTS = (
    "before_sink_write", "mid_sink_write", "before_sink_sync", "before_sink_record",
    "after_sink_record",
)  # fmt: skip


class Fence(Struct, frozen=True):
    epoch: int = 1


def run_writer(folder: Path, board: FaultBoard | None, epoch: int) -> tuple[int, int]:
    """Write until killed or done; returns the exit code, and the last event that was confirmed."""
    environment = {**os.environ, **({} if board is None else board.env())}
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(folder), str(epoch)],
        capture_output=True, env=environment, text=True, check=False, timeout=60,
    )  # fmt: skip
    confirmed = [int(line) for line in done.stdout.split()]
    return done.returncode, max(confirmed, default=0)


@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_writer_leaves_each_batch_once_or_not_at_all(
    tmp_path: Path, point: str
) -> None:
    board, confirmed = FaultBoard(tmp_path / "faults"), 0
    for epoch, skip in enumerate((0, 3), 1):
        board.arm(point, "kill", skip=skip)
        code, last = await asyncio.to_thread(run_writer, tmp_path, board, epoch)
        assert code == -signal.SIGKILL
        confirmed = max(confirmed, last)
        sink = FileSink(tmp_path / "{key}.log")
        watermark = await sink.open("orders", Fence(epoch))
        await sink.close()
        lines = (tmp_path / "orders.log").read_text().splitlines()
        assert lines == [f"event {n}" for n in range(1, watermark + 1)]
        assert watermark % 4 == 0  # whole batches
        assert watermark >= confirmed  # I42: what was confirmed is there
    board.disarm(point)
    code, last = await asyncio.to_thread(run_writer, tmp_path, board, 3)
    assert code == 0
    lines = (tmp_path / "orders.log").read_text().splitlines()
    assert lines == [f"event {n}" for n in range(1, last + 1)]


async def test_a_torn_tail_and_a_torn_record_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    sink = FileSink(tmp_path / "{key}.log")
    assert await sink.open("a", Fence()) == 0
    await sink.write(["one", "two"], Fence(), 1)
    await sink.write(["three"], Fence(), 3)
    await sink.close()
    with path.open("ab") as file:
        file.write(b"half of a li")
    assert await sink.open("a", Fence()) == 3
    await sink.close()
    assert path.read_text() == "one\ntwo\nthree\n"
    side = path.with_name("a.log.state")
    record = bytearray(side.read_bytes())
    turns = [int.from_bytes(record[slot * 512 : slot * 512 + 8], "big") for slot in range(2)]
    record[turns.index(max(turns)) * 512 + 12] ^= 0xFF  # the youngest record is torn
    side.write_bytes(record)
    assert await sink.open("a", Fence()) == 3
    await sink.close()


async def test_a_lower_fence_is_refused(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "{key}.log")
    await sink.open("a", Fence(5))
    with pytest.raises(StaleSink):
        await sink.write(["late"], Fence(4), 1)
    await sink.close()
    with pytest.raises(StaleSink):
        await sink.open("a", Fence(4))
    assert await sink.open("a", Fence(5)) == 0
    await sink.close()
    assert (tmp_path / "a.log").read_bytes() == b""


async def test_an_owner_that_was_lost_blocks_nobody_and_writes_no_more(tmp_path: Path) -> None:
    lost, path = FileSink(tmp_path / "{key}.log"), tmp_path / "a.log"
    await lost.open("a", Fence(1))
    await lost.write(["one"], Fence(1), 1)
    for epoch in (1, 2):  # of the same host, and of the next
        sink = lost.for_key()
        assert await sink.open("a", Fence(epoch)) == epoch
        with pytest.raises(StaleSink):
            await lost.write(["late"], Fence(1), 2)
        await sink.write([str(epoch)], Fence(epoch), epoch + 1)
        lost = sink
    assert path.read_text() == "one\n1\n2\n"


async def test_only_one_owner_writes_at_a_time(tmp_path: Path) -> None:
    first, path = FileSink(tmp_path / "{key}.log"), tmp_path / "a.log"
    await first.open("a", Fence(1))
    with path.with_name("a.log.state").open("rb") as side:
        fcntl.flock(side, fcntl.LOCK_EX)  # as by a process that stands still in a write
        with pytest.raises(Conflict, match="another owner"):
            await first.for_key().open("a", Fence(2))
        with pytest.raises(Conflict, match="another owner"):
            await first.write(["one"], Fence(1), 1)
    await first.write(["one"], Fence(1), 1)
    await first.close()


async def test_files_of_others_and_cut_files_are_left_alone(tmp_path: Path) -> None:
    path, sink = tmp_path / "a.log", FileSink(tmp_path / "{key}.log")
    path.write_text("not ours\n")
    with pytest.raises(Conflict, match="move it away"):
        await sink.open("a", Fence())
    assert path.read_text() == "not ours\n"
    path.unlink()
    await sink.open("a", Fence())
    await sink.write(["one"], Fence(), 1)
    await sink.close()
    path.write_text("")
    with pytest.raises(Conflict, match="were recorded"):
        await sink.open("a", Fence())


async def test_a_failed_write_is_cut_off_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FileSink(tmp_path / "{key}.log")
    await sink.open("a", Fence())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            await sink.write(["one"], Fence(), 1)
    await sink.write(["other"], Fence(), 1)
    await sink.close()
    assert (tmp_path / "a.log").read_text() == "other\n"


async def test_csv_rows_stand_below_a_header_and_no_cell_is_a_formula(tmp_path: Path) -> None:
    class Row(Struct):
        id: int
        name: str

    sink = CsvSink(tmp_path / "{key}.csv", fieldnames=["id", "name"]).for_key()
    await sink.open("a", Fence())
    await sink.write([{"id": -1, "name": "=1+1"}, Row(2, 'x,"y"\nz')], Fence(), 1)
    await sink.close()
    await sink.open("a", Fence(2))  # no second header
    await sink.write([{"id": 3}], Fence(2), 3)
    await sink.close()
    rows = list(csv.reader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert rows == [["id", "name"], ["-1", "'=1+1"], ["2", 'x,"y"\nz'], ["3", ""]]


@pytest.mark.parametrize(
    ("sink", "batch", "bad"),
    [
        (CsvSink("{key}.csv", ["id"]), [{"id": 1}, {"ID": 2}, 7], (1, 2)),
        (CsvSink("{key}.csv"), [[1, 2], "text"], (1,)),
        (FileSink("{key}.log"), ["fine", "two\nlines", object()], (1, 2)),
    ],
)
async def test_events_that_cannot_be_written_are_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any, batch: list[Any],
    bad: tuple[int, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    await sink.open("a", Fence())
    with pytest.raises(Rejected) as refused:
        await sink.write(batch, Fence(), 1)
    assert refused.value.indexes == bad
    await sink.close()
    assert await sink.open("a", Fence()) == 0
    await sink.close()


def test_a_key_in_a_folder_and_equal_fields_are_refused() -> None:
    with pytest.raises(InvalidValue):
        FileSink("{key}/events.log")
    with pytest.raises(InvalidValue):
        CsvSink("{key}.csv", ["a", "a"])


async def test_a_function_is_a_sink() -> None:
    calls: list[Any] = []

    async def write(key: str, batch: Any, fence: Any, seq: int) -> None:
        calls.append((key, list(batch), fence.epoch, seq))

    sink = CallableSink(write, watermark=lambda key: 7).for_key()
    assert await sink.open("a", Fence()) == 7
    await sink.write(["x"], Fence(3), 8)
    assert calls == [("a", ["x"], 3, 8)]
    assert await CallableSink(write).open("a", Fence()) is None


@given(st.text(), st.text())
def test_file_names_are_safe_and_tell_keys_apart(one: str, other: str) -> None:
    name = file_name(one)
    assert (name == file_name(other)) == (one == other)
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert not name.startswith(".")
    assert "\0" not in name
    assert len(name.encode()) <= FILE_NAME_BYTES_MAX


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "..", ".", "a\0b", "x" * 999])
async def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    sink = FileSink(tmp_path / "in" / "{key}.log")
    await sink.open(key, Fence())
    await sink.close()
    assert len(list((tmp_path / "in").iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [("=A1", "'=A1"), ("+1", "'+1"), ("-x", "'-x"), ("@f", "'@f"), ("a=b", "a=b"), (-3, -3)],
)
def test_cells(value: Any, cell: Any) -> None:
    assert csv_cell(value) == cell
