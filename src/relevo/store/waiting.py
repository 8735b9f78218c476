"""Writes that meet a lock of another transaction wait here, apart from everybody else's.

A grouped statement never waits for an item: it leaves out the calls whose items another transaction
holds. Each of those then waits by itself, in a transaction of its own. Few of them wait in the
database at a time, and only for a slice of time, so a transaction that idles takes neither the
connections nor the groups of callers that want other items.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from relevo import limits
from relevo.errors import Closed, ItemLocked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

R = TypeVar("R")
SLICE_SECONDS_MAX: Final = 2.0
SLICE_SECONDS_MIN: Final = 0.05
"""How long one write waits in the database before the next one has its turn."""


class Busy(Exception):
    """Another transaction holds an item that a write needs; the write changed nothing."""


class WaitingRoom:
    """Lets writes wait for items that other transactions hold; shared by a store's containers."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(limits.ITEM_WAITERS_MAX)
        self._waiting = 0
        self._closing = False

    async def wait(self, name: str, work: Callable[[float], Awaitable[R]]) -> R:
        """Do work that raises `Busy` after so many seconds, again and again until it succeeds.

        `name` says what is written. `ItemLocked` if it stays busy for too long.
        """
        started = time.monotonic()
        self._waiting += 1
        try:
            while not self._closing:
                async with self._slots:
                    try:
                        return await work(self._slice())
                    except Busy as busy:
                        waited = time.monotonic() - started
                        if waited >= limits.ITEM_WAIT_SECONDS_MAX:
                            raise _locked(name, waited) from busy.__cause__
        finally:
            self._waiting -= 1
        raise Closed(f"the store was closed while another transaction held {name}")

    def close(self) -> None:
        """Let those who wait have their present turn, and no other."""
        self._closing = True

    def _slice(self) -> float:
        fair = SLICE_SECONDS_MAX * limits.ITEM_WAITERS_MAX / self._waiting
        return max(SLICE_SECONDS_MIN, min(SLICE_SECONDS_MAX, fair))


class Lines:
    """Writes of this process that wait, one line for each item: first come, first served."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Task[Any]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._last

    def join(self, key: Hashable, write: Callable[[], Awaitable[R]]) -> asyncio.Task[R]:
        """Write when everybody who waits for this item already has written."""
        before = self._last.get(key)

        async def turn() -> R:
            if before is not None:
                await asyncio.wait([before])
            return await write()

        task = asyncio.get_running_loop().create_task(turn(), name="write of a locked item")
        self._last[key] = task
        task.add_done_callback(lambda done: self._leave(key, done))
        return task

    async def end(self) -> None:
        """Wait until every line is empty."""
        while self._last:
            await asyncio.wait(list(self._last.values()))
            await asyncio.sleep(0)

    def _leave(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._last.get(key) is task:
            del self._last[key]
        if not task.cancelled():
            task.exception()  # seen, also when its caller was cancelled and nobody asks


def _locked(name: str, waited: float) -> ItemLocked:
    return ItemLocked(
        f"another transaction has held {name} for {waited:.0f} seconds; nothing was changed. Commit"
        " or end that transaction (pg_stat_activity shows it), and try again"
    )
