"""Sinks: where an exclusive writer puts its batches.

    writer = app.governance.writer("events", sink=CsvSink("{key}.csv"))

Any class with these methods is a sink. The ones here write to files (`CsvSink`, `FileSink`), or
with a function of the user (`CallableSink`). A file has each batch once or not at all, wherever the
process was killed: `recorded_file.py` says how.
"""

from __future__ import annotations

import asyncio
import csv
import inspect
import io
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from relevo.errors import Conflict, InvalidValue
from relevo.governance.core.names import file_name
from relevo.governance.errors import Rejected
from relevo.governance.recorded_file import RecordedFile
from relevo.kernel import callables

if TYPE_CHECKING:
    from typing import Self


FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class SinkFence(Protocol):
    """The owner's token; of two owners of a key the younger has the higher epoch."""

    @property
    def epoch(self) -> int:
        """The number of the period of ownership."""


class Sink(Protocol):
    """A place for events of one key at a time; a writer opens one for each key it owns."""

    def for_key(self) -> Sink:
        """Return a sink of its own for a key."""

    async def open(self, key: str, fence: SinkFence) -> int | None:
        """Prepare to write; returns the number of the last event it has, None if it cannot tell.

        Raises `StaleSink` if a younger owner has written.
        """

    async def write(self, batch: Sequence[Any], fence: SinkFence, seq: int) -> None:
        """Write events of which the first has the number `seq`; durable when this returns.

        Raises `Rejected` for events that can never be written; any other error is transient.
        """

    async def close(self) -> None:
        """Let go of everything."""


class FileSink:
    """Writes a line per event: bytes and text as they are, anything else as JSON.

    `path` may contain `{key}`, which becomes a safe file name; its folder must exist or be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._template = os.fspath(path)
        if "{key}" in os.path.dirname(self._template):
            raise InvalidValue(
                f"the path {self._template!r} has {{key}} in a folder; use it in the file's name",
                pointer="path",
            )
        self._file: RecordedFile | None = None

    def for_key(self) -> Self:
        """As `Sink.for_key`."""
        return type(self)(self._template)

    async def open(self, key: str, fence: SinkFence) -> int:
        """As `Sink.open`; cuts off what was never confirmed."""
        await self.close()
        file = RecordedFile(self._path(key))
        try:
            seq = await asyncio.to_thread(file.open, fence.epoch, self._header())
        except BaseException:
            file.close()
            raise
        self._file = file
        return seq

    async def write(self, batch: Sequence[Any], fence: SinkFence, seq: int) -> None:
        """As `Sink.write`."""
        if self._file is None:
            raise Conflict("the sink is not open; call open first")
        data = self._encoded(batch)
        await asyncio.to_thread(self._file.append, data, fence.epoch, seq, len(batch))

    async def close(self) -> None:
        """As `Sink.close`."""
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.close)

    def _path(self, key: str) -> Path:
        return Path(self._template.replace("{key}", file_name(key)))

    def _header(self) -> bytes:
        return b""

    def _encoded(self, batch: Sequence[Any]) -> bytes:
        lines, bad = [], []
        for index, event in enumerate(batch):
            try:
                line = _line(event)
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
                bad.append(index)
                continue
            if b"\n" in line:
                bad.append(index)
            lines.append(line)
        if bad:
            raise Rejected(
                f"{len(bad)} of {len(batch)} events are no line of text, bytes or JSON",
                indexes=tuple(bad),
            )
        return b"".join(line + b"\n" for line in lines)


class CsvSink(FileSink):
    """Writes a row per event, a mapping or an object with these fields, below a header.

    Cells that spreadsheets would run as a formula are written with an apostrophe before them.
    """

    def __init__(
        self, path: str | os.PathLike[str], fieldnames: Sequence[str] | None = None
    ) -> None:
        super().__init__(path)
        if fieldnames is not None and len(set(fieldnames)) < max(1, len(fieldnames)):
            raise InvalidValue("fieldnames must be different, and at least one")
        self._fieldnames = None if fieldnames is None else tuple(fieldnames)

    def for_key(self) -> Self:
        """As `Sink.for_key`."""
        return type(self)(self._template, self._fieldnames)

    def _header(self) -> bytes:
        return b"" if self._fieldnames is None else _csv([self._fieldnames])

    def _encoded(self, batch: Sequence[Any]) -> bytes:
        rows, bad = [], []
        for index, event in enumerate(batch):
            try:
                rows.append([csv_cell(cell) for cell in self._cells(event)])
            except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
                bad.append(index)
        if bad:
            raise Rejected(
                f"{len(bad)} of {len(batch)} events do not have the fields of the file",
                indexes=tuple(bad),
            )
        return _csv(rows)

    def _cells(self, event: Any) -> Sequence[Any]:
        if self._fieldnames is None:
            if isinstance(event, Sequence) and not isinstance(event, (str, bytes)):
                return event
            raise TypeError("without fieldnames an event is a sequence of cells")
        if isinstance(event, Mapping):
            if unknown := event.keys() - set(self._fieldnames):
                raise LookupError(f"unknown fields {unknown}")
            return [event.get(name) for name in self._fieldnames]
        return [getattr(event, name) for name in self._fieldnames]


class CallableSink:
    """Writes with a function: `write(key, batch, fence, seq)`, async or plain.

    `watermark(key)` returns the number of the last event that was written, if it is known; then
    each event is written exactly once, else at least once.
    """

    def __init__(
        self,
        write: Callable[[str, Sequence[Any], SinkFence, int], Awaitable[None] | None],
        *,
        watermark: Callable[[str], Awaitable[int | None] | int | None] | None = None,
    ) -> None:
        self._write = write
        self._watermark = watermark
        self._key = ""

    def for_key(self) -> CallableSink:
        """As `Sink.for_key`."""
        return CallableSink(self._write, watermark=self._watermark)

    async def open(self, key: str, fence: SinkFence) -> int | None:
        """As `Sink.open`."""
        del fence
        self._key = key
        return None if self._watermark is None else await _called(self._watermark, key)

    async def write(self, batch: Sequence[Any], fence: SinkFence, seq: int) -> None:
        """As `Sink.write`."""
        await _called(self._write, self._key, batch, fence, seq)

    async def close(self) -> None:
        """As `Sink.close`."""


def _line(event: Any) -> bytes:
    if isinstance(event, (bytes, bytearray, memoryview)):
        return bytes(event)
    if isinstance(event, str):
        return event.encode()
    return msgspec.json.encode(event)


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


async def _called(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the user: a plain one in a thread, for it may block."""
    if callables.is_async(function):
        return await function(*args)
    result = await asyncio.to_thread(function, *args)
    return await result if inspect.isawaitable(result) else result


def csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet runs: text that looks like a formula gets an apostrophe."""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
