"""Whether the database still takes writes: one that needs new room on the disk and is committed.

A heartbeat alone would not tell. It writes a row anew where the old one was, and its log goes into
a file that is there already, so it succeeds for a long time on a disk that is full for others.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo import limits
from relevo.errors import RelevoError
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from relevo.kernel.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
TIMEOUT_SECONDS: Final = 2.0


class Probed(Struct, frozen=True):
    """The result of the last probe."""

    age: float
    """How many seconds ago it ended."""
    error: str | None
    """The error of the write."""


class WriteProbe:
    """Writes at most every `WRITE_PROBE_SECONDS`, however often it is asked."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._ended_at = float("-inf")
        self._error: str | None = None
        self._running: asyncio.Task[None] | None = None

    async def check(self, host: UUID) -> Probed:
        """Return the result of the last probe, or of a new one if it is too old."""
        if self._clock() - self._ended_at >= limits.WRITE_PROBE_SECONDS:
            if self._running is None:
                self._running = asyncio.create_task(self._probe(host), name="write probe")
            await asyncio.shield(self._running)
        return Probed(self._clock() - self._ended_at, self._error)

    async def _probe(self, host: UUID) -> None:
        async def write(tx: Transaction) -> None:
            await tx.execute(SQL.little_memory)
            await tx.execute(SQL.take_disk_space)
            await tx.execute(SQL.note_write, host)

        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._database.run(write, idempotent=True)
            self._error = None
        except (RelevoError, TimeoutError) as error:
            self._error = str(error) or f"no answer within {TIMEOUT_SECONDS:g} s"
        finally:
            self._ended_at = self._clock()
            self._running = None
