"""A file that grows by whole batches, and has each of them once or not at all.

Beside `events.csv` there is `events.csv.state`. A batch is appended and the file synced; then its
new length and the number of its last event are recorded in the side file. What stands behind the
recorded length was never confirmed, and is cut off when the file is opened.

The side file has two records with checksums, which are written in turns: one that is torn leaves
the other. It also records the epoch of the owner, and an owner with a lower one is refused. Whoever
opens the file makes a record, too; an earlier owner then finds one that is not its own and writes
no more, even if nobody told it that it has lost the file. A lock keeps two processes of one machine
apart while one of them writes; it is not held in between, so an owner that was lost blocks nobody.

Everything here blocks; sinks call it in threads.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import Conflict
from relevo.governance.errors import StaleSink
from relevo.kernel import faults
from relevo.kernel.durable import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE_SUFFIX: Final = ".state"
_MODE: Final = 0o640
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_RECORD: Final = struct.Struct(">QQQQI")
_SLOT_BYTES: Final = 512
"""A sector: disks write it as a whole."""


class SideState(Struct, frozen=True):
    """What the side file of a file records."""

    turn: int = 0
    """Counts the records."""
    length: int = 0
    seq: int = 0
    epoch: int = 0


class RecordedFile:
    """A file and its side file; `open` before anything else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = -1
        self._side = -1
        self._state = self._attempt = SideState()
        """The last record, and the one that was tried after it: it may be there all the same."""
        self._is_torn = True
        """Whether the file may be longer than recorded."""

    def open(self, epoch: int, header: bytes) -> int:
        """Take the file over and cut it back; a new one begins with the header.

        Returns the number of its last event. Raises `StaleSink` if a younger owner has written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        side = self._path.with_name(self._path.name + STATE_SUFFIX)
        self._side = os.open(side, _FLAGS, _MODE)
        with self._locked():
            return self._take_over(epoch, header)

    def _take_over(self, epoch: int, header: bytes) -> int:
        known = self._read_state()
        self._state = known or SideState()
        self._refuse_older(epoch)
        self._data = os.open(self._path, _FLAGS, _MODE)
        self._check_length(known)
        sync_folder(self._path.parent)
        self._record(self._state.length, self._state.seq, epoch)
        self._cut()
        if not self._state.length and header:
            self._is_torn = True
            self._put(header)
            self._record(len(header), self._state.seq, epoch)
            self._is_torn = False
        return self._state.seq

    def append(self, data: bytes, epoch: int, seq: int, count: int) -> None:
        """Append so many events from the number `seq` on; they are durable when this returns.

        Raises `StaleSink` if the file was opened again since this owner did.
        """
        with self._locked():
            self._append(data, epoch, seq, count)

    def _append(self, data: bytes, epoch: int, seq: int, count: int) -> None:
        self._refuse_older(epoch)
        if self._read_state() not in (self._state, self._attempt):
            raise StaleSink(f"{self._path} was taken over by another owner")
        if seq != self._state.seq + 1:
            raise Conflict(
                f"{self._path} has the events up to {self._state.seq}, and {seq} was to follow"
            )
        self._cut()
        self._is_torn = True
        faults.hit("before_sink_write")
        self._put(data)
        faults.hit("before_sink_record")
        self._record(self._state.length + len(data), seq + count - 1, epoch)
        self._is_torn = False
        faults.hit("after_sink_record")

    def close(self) -> None:
        """Close the file."""
        for descriptor in (self._data, self._side):
            if descriptor >= 0:
                os.close(descriptor)
        self._data = self._side = -1

    def __del__(self) -> None:
        self.close()  # an owner that was lost closes nothing

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            fcntl.flock(self._side, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another owner writes to {self._path} now; only one may") from None
        try:
            yield
        finally:
            fcntl.flock(self._side, fcntl.LOCK_UN)

    def _refuse_older(self, epoch: int) -> None:
        if epoch < self._state.epoch:
            raise StaleSink(
                f"{self._path} was written under epoch {self._state.epoch}, and this owner has"
                f" {epoch}: another owner has taken over"
            )

    def _check_length(self, known: SideState | None) -> None:
        length = os.fstat(self._data).st_size
        if known is None and length:
            raise Conflict(
                f"{self._path} exists, and nothing beside it says how far it was written; move it"
                " away, or use another path"
            )
        if length < self._state.length:
            raise Conflict(
                f"{self._path} has {length} bytes, and {self._state.length} were recorded; restore"
                f" it, or remove it together with {self._path.name}{STATE_SUFFIX} to begin anew"
            )

    def _cut(self) -> None:
        """Cut off what was not confirmed: a write that failed, or whose process ended."""
        if self._is_torn:
            os.ftruncate(self._data, self._state.length)
            os.fsync(self._data)
            self._is_torn = False

    def _put(self, data: bytes) -> None:
        half = len(data) // 2
        _write_at(self._data, data[:half], self._state.length)
        faults.hit("mid_sink_write")
        _write_at(self._data, data[half:], self._state.length + half)
        faults.hit("before_sink_sync")
        os.fsync(self._data)

    def _record(self, length: int, seq: int, epoch: int) -> None:
        state = self._attempt = SideState(self._state.turn + 1, length, seq, epoch)
        fields = (state.turn, state.length, state.seq, state.epoch)
        body = _RECORD.pack(*fields, 0)
        record = _RECORD.pack(*fields, zlib.crc32(body))
        _write_at(self._side, record, state.turn % 2 * _SLOT_BYTES)
        os.fsync(self._side)
        self._state = state

    def _read_state(self) -> SideState | None:
        """Return the younger record that is whole; None if nothing was recorded yet."""
        found = []
        for slot in range(2):
            record = os.pread(self._side, _RECORD.size, slot * _SLOT_BYTES)
            if len(record) == _RECORD.size:
                *fields, checksum = _RECORD.unpack(record)
                if zlib.crc32(_RECORD.pack(*fields, 0)) == checksum:
                    found.append(SideState(*fields))
        return max(found, key=lambda state: state.turn, default=None)


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
