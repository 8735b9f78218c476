"""Deadlines of what usually ends long before: one timer of the loop for many.

A timer handle for each call, made and canceled again, costs more than all else that is done for
its deadline. Here deadlines that are close to each other share one; each is told a little late.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

TICKS: Final = 100
"""Timers in a second: what has a deadline hears of it at most 1 / TICKS seconds late."""


class Timed(Protocol):
    """Something that has a deadline."""

    def expire(self) -> None:
        """Hear that it has passed."""


class Deadlines:
    """Tells what is still there when its deadline has passed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ticks: dict[int, set[Timed]] = {}

    def add(self, at: float, timed: Timed) -> None:
        """Watch something until a time of the loop."""
        tick = int(at * TICKS) + 1
        due = self._ticks.get(tick)
        if due is None:
            due = self._ticks[tick] = set()
            self._loop.call_at(tick / TICKS, self._pass, tick)
        due.add(timed)

    def remove(self, at: float, timed: Timed) -> None:
        """Watch it no longer; `at` is what it was added with."""
        due = self._ticks.get(int(at * TICKS) + 1)
        if due is not None:
            due.discard(timed)

    def _pass(self, tick: int) -> None:
        for timed in self._ticks.pop(tick):
            timed.expire()
