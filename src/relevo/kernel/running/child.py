"""The process of a handler: `python -m relevo.kernel.running.child`, started and fed by a host.

It runs one handler at a time, by the function that the order of a part names, and ends when its
host does: by a signal of the system where there is one, by the end of its input everywhere.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any, BinaryIO, Final

import msgspec

from relevo.errors import Conflict
from relevo.kernel.running import wire
from relevo.kernel.running.places import found_at

_PR_SET_PDEATHSIG: Final = 1


class Pipe:
    """The way to the host."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Read until the host ends; then end the process."""
        while header := self._source.read(wire.HEADER_BYTES):
            size = int.from_bytes(header, "big")
            body = self._source.read(size)
            if len(body) < size:
                break
            self._came.put(msgspec.json.decode(body))
        os._exit(1)

    def receive(self) -> Any:
        """Return the host's next message."""
        return self._came.get()

    def send(self, message: bytes) -> None:
        """Send an encoded message."""
        self._sink.write(message)
        self._sink.flush()


class ChildRun:
    """An order of the host: requests and their answers, one at a time, until it ends."""

    def __init__(self, pipe: Pipe, number: int) -> None:
        self.pipe = pipe
        self._number = number
        self._over = False
        self._asking = threading.Lock()

    def signed(self, kind: str, **fields: Any) -> bytes:
        """Return a message of this run."""
        return wire.packed({"kind": kind, **fields, "run": self._number})

    def ask(self, kind: str, **fields: Any) -> Any:
        """Send a request and return its result; raises the error that the host returns.

        Raises `Conflict` once the run is over: a thread that is left would speak for the next one.
        """
        with self._asking:
            if self._over:
                raise Conflict(wire.OVER)
            self.pipe.send(self.signed(kind, **fields))
            answer = self.pipe.receive()
            while answer["run"] != self._number:  # to a fork of a former run
                answer = self.pipe.receive()
        if "error" in answer:
            raise wire.heard(answer["error"])
        return answer["value"]

    def end(self, message: bytes) -> None:
        """Say the last thing, after the answer that a thread may wait for; refuse all others."""
        self._over = True
        with self._asking:
            self.pipe.send(message)


def _end_with(parent: int) -> None:
    """Ask the system to kill this process when its host ends, however that comes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Run handlers until the host has no more."""
    _end_with(int(sys.argv[1]))
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Output of handlers goes to the log of the host, not between its messages.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    pipe = Pipe(source, sink)
    sys.path[:] = pipe.receive()
    while True:
        order = pipe.receive()
        if "call" not in order:
            continue  # an answer to a fork of a former run
        run = ChildRun(pipe, order["run"])
        try:
            message = run.signed("done", value=found_at(order["call"])(run, order))
        except BaseException as error:
            message = run.signed("failed", error=wire.error_fields(error))
        _flush()
        run.end(message)


def _flush() -> None:
    """Let the log have what the handler printed; the next one can print also if it closed that."""
    try:
        sys.stdout.flush()
    except Exception:
        sys.stdout = os.fdopen(os.dup(2), "w")


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # at once: Python would wait for threads that handlers have left
