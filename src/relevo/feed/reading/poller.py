"""Asks for all idle leases of a processor at once whether there is anything to read.

Idle leases are part of the host's one poll, however many they are. A wake-up makes the question
come at once; losing one only delays it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from relevo.kernel.events import reading as event_reading
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Question

if TYPE_CHECKING:
    from relevo.feed.model import Mode
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.feed")
POLLS: Final[dict[Mode, str]] = {
    "latest": SQL.poll_latest,
    "all_versions": SQL.poll_versions,
    "events": event_reading.POLL,
}


class Idle:
    """One waiting lease: its position in each of its ranges, and what was found."""

    def __init__(self, positions: dict[int, int]) -> None:
        self.positions = positions
        self.heads: dict[int, int] = {}
        """Ranges that have something behind the position, and up to which LSN."""
        self.split = False
        """Whether a range of it was split, or is gone with its container."""
        self.error: Exception | None = None
        """Why the poll failed, if it did."""
        self.found = asyncio.Event()


class Poller:
    """Polls for changes of one container and mode."""

    def __init__(
        self, database: Database, wakeups: Wakeups, container_id: int, mode: Mode, interval: float
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._sql = POLLS[mode]
        question = Question(self._sql, self._places, every=interval, of_rows=True)
        self._woken = wakeups.signal(f"feed:{container_id}", question=question)
        self._interval = interval
        self._waiting: set[Idle] = set()
        self._joined = asyncio.Event()
        self.hints = 0
        """Number of wake-ups; a reader notes it before reading, and passes it to `wait` after."""

    async def wait(
        self,
        positions: dict[int, int],
        *stops: asyncio.Event,
        since: int | None = None,
        seconds: float | None = None,
    ) -> Idle:
        """Return when there is something to read, a range was split, or one of `stops` is set.

        If a wake-up came `since` the lease was last read, the question comes at once; else at the
        next wake-up, or within the interval.
        """
        idle = Idle(positions)
        self._waiting.add(idle)
        self._joined.set()
        if since is not None and self.hints != since:
            self._woken.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (idle.found, *stops)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
        finally:
            self._waiting.discard(idle)
            for wait in waits:
                wait.cancel()
        return idle

    async def run(self) -> None:
        """Poll while a lease waits: at each wake-up, and at least once per interval."""
        with self._woken:
            while True:
                if not self._waiting:
                    self._joined.clear()
                    await self._joined.wait()
                await self._ask_or_tell()
                self.hints += await self._woken.wait(self._woken.patience(self._interval))

    async def _ask_or_tell(self) -> None:
        """Poll; if that fails, each waiting lease gets the error and reports it."""
        try:
            await self._ask()
        except Exception as error:
            for one in list(self._waiting):
                one.error = error
                one.found.set()

    def _places(self) -> tuple[list[int], list[int], list[int]]:
        """Return the positions of all waiting leases, as the statement takes them."""
        places = [
            (n, range_id, lsn) for n, one in enumerate(self._waiting)
            for range_id, lsn in one.positions.items()
        ]  # fmt: skip
        return [n for n, _, _ in places], [r for _, r, _ in places], [lsn for _, _, lsn in places]

    async def _ask(self) -> None:
        waiting, places = list(self._waiting), self._places()
        if not places[0]:
            return
        rows = await self._database.fetch(self._sql, *places)
        for row in rows:
            one = waiting[row["n"]]
            if one not in self._waiting:
                continue  # it has read since, perhaps less than this head
            one.split = one.split or row["sealed"]
            if row["lsn"] is not None and row["lsn"] > one.positions[row["range_id"]]:
                one.heads[row["range_id"]] = row["lsn"]
            one.found.set()
