"""Measures how long one turn of the event loop takes, in CPU time of its thread.

    with watching() as watched:
        await site.ask(…)
    watched.assert_never_held()

A busy machine does not matter, since time in which the thread does not run is not counted; nor does
work in other threads. The garbage collector waits meanwhile: what it walks through is the whole
test run, not the request.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from unittest import mock

from relevo.errors import RelevoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HELD_SECONDS_MAX: Final = 0.05
"""No request or rule holds the event loop for longer."""


class Watched:
    """The longest turn so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.turn = "none"

    def took(self, seconds: float, turn: object) -> None:
        """Take in a turn."""
        if seconds > self.seconds:
            self.seconds, self.turn = seconds, repr(turn)

    def assert_never_held(self, what: object = "") -> None:
        """Fail if one turn was too long."""
        assert self.seconds <= HELD_SECONDS_MAX, (
            f"the event loop was held for {self.seconds * 1000:.0f} ms by {what!s:.120} {self.turn}"
        )


@contextmanager
def watching() -> Iterator[Watched]:
    """Watch the event loops of this process; not uvloop, which has turns of its own."""
    watched, run = Watched(), asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            watched.took(time.thread_time() - begun, handle)

    with _uncollected(), mock.patch.object(asyncio.Handle, "_run", measured):
        yield watched


def seconds_of(function: Callable[..., object], *arguments: object) -> float:
    """Return the CPU time that a call takes, whatever it returns or raises."""
    with _uncollected():
        begun = time.thread_time()
        with suppress(RelevoError):
            function(*arguments)
        return time.thread_time() - begun


@contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
