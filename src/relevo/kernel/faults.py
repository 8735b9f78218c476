"""Named points where tests act on a running process: kill, stop, fail, delay or hold it there.

Product code marks a moment worth breaking with `await faults.point("mid_handoff")`, or with
`faults.hit(...)` in a thread. Outside tests that is one comparison with None: whether points are
live is decided once, when this module is imported, by `RELEVO_FAULTS_DIR`. Where it is set, a point
that is reached looks for `<dir>/<point>.json` (an `Arming`, put there by the `FaultBoard` of
`relevo.testing`), appends a line `<serial> <pid>` to `<dir>/<point>.hits` if it fires, and acts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, assert_never

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORY_VARIABLE: Final = "RELEVO_FAULTS_DIR"
PROCESS_VARIABLE: Final = "RELEVO_FAULTS_PROCESS"

WAIT_POLL_SECONDS: Final = 0.01

Action = Literal["kill", "stop", "raise", "delay", "wait"]


class FaultInjected(Exception):
    """A test asked for a failure at this point; product code treats it as any unknown error."""


class Arming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action at a point, and for which hits. `skip` and `times` count per process."""

    action: Action
    skip: int = 0
    """Hits that pass unharmed before the first that fires."""
    times: int | None = 1
    """Hits that fire after those; None is every one."""
    seconds: float = 0.0
    """How long a `delay` lasts."""
    process: str | None = None
    """Only the process whose `RELEVO_FAULTS_PROCESS` is this; None is all."""
    serial: str = "-"
    """Distinguishes one arming from the next, so that counting restarts; no blanks."""


class LivePoints:
    """The points of one process, looked up in the directory of a fault board."""

    def __init__(self, directory: Path, process: str | None = None) -> None:
        self._directory = directory
        self._process = process
        self._seen: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LivePoints | None:
        """The points of a process started with these variables; None outside tests."""
        directory = environment.get(DIRECTORY_VARIABLE)
        if not directory:
            return None
        return cls(Path(directory), environment.get(PROCESS_VARIABLE))

    def pauses(self, name: str) -> Iterator[float]:
        """Act as armed; yields the seconds that the caller sleeps, in its own way, in between."""
        arming = self._fires(name)
        if arming is None:
            return
        match arming.action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                # To this thread: sent to the process, the signal is taken by the main thread, and
                # this one would run on past the point until it is told.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "raise":
                raise FaultInjected(f"a test injected a failure at the point {name!r}")
            case "delay":
                yield arming.seconds
            case "wait":
                while self._armed(name) == arming:
                    yield WAIT_POLL_SECONDS
            case _:
                assert_never(arming.action)

    def _fires(self, name: str) -> Arming | None:
        """The arming that this hit falls under, after leaving its line for the test that waits."""
        arming = self._armed(name)
        if arming is None or arming.process not in (None, self._process):
            return None
        with self._lock:
            seen = self._seen.get((name, arming.serial), 0)
            self._seen[name, arming.serial] = seen + 1
        if seen < arming.skip or (arming.times is not None and seen >= arming.skip + arming.times):
            return None
        hits = os.open(
            self._directory / f"{name}.hits", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
        )
        try:
            os.write(hits, f"{arming.serial} {os.getpid()}\n".encode())
        finally:
            os.close(hits)
        return arming

    def _armed(self, name: str) -> Arming | None:
        try:
            text = (self._directory / f"{name}.json").read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(text, type=Arming)


# The one object of module level: a point is reached from anywhere, so handing this through every
# constructor would bend the product for its tests; and `skip` and `times` count per process.
_live: Final = LivePoints.from_environment(os.environ)
LIVE: Final = _live is not None
"""Whether points do anything; code that runs for each of very many calls asks first."""


async def point(name: str) -> None:
    """Let a test act here; while it delays or holds this task, the event loop goes on."""
    if _live is None:
        return
    for seconds in _live.pauses(name):
        await asyncio.sleep(seconds)


def hit(name: str) -> None:
    """Let a test act here; a delay or hold blocks this thread (an event loop, if it runs one)."""
    if _live is None:
        return
    for seconds in _live.pauses(name):
        time.sleep(seconds)
