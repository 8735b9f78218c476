"""Stops a process on signals: the first drains, the second ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from relevo.cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable

FAREWELL_SECONDS: Final = 3.0
"""How long `farewell` may take before the process ends at once."""


class StopSignals:
    """During the block, SIGTERM, SIGINT and SIGHUP stop the process.

    The first signal sets `asked`, or while `starting` cancels the task that entered the block. The
    next one ends the process in the signal handler, so that it works while the loop is blocked.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.starting = True
        """Whether the host is still starting, with nothing to drain."""
        self.farewell: Callable[[], object] | None = None
        """Runs in a thread before the process ends at once, for at most `FAREWELL_SECONDS`."""
        self.number: int | None = None
        """The first signal."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        if self.number is not None:
            self._end(number)
        self.number = number
        self._loop.call_soon_threadsafe(self._ask)

    def _ask(self) -> None:
        self.asked.set()
        if self.starting and self._task is not None:
            self._task.cancel()

    def _end(self, number: int) -> None:
        if self.farewell is not None:
            thread = threading.Thread(target=self.farewell, daemon=True)
            thread.start()
            thread.join(FAREWELL_SECONDS)
        os._exit(exits.of_signal(number))
