"""Follows the event log for hints: which jobs, workers and policies to look at again.

The log is read for ids only; what is true stands in the rows. Reading a row twice is harmless, so
the position need not be stored: who takes over notes the head of the log, then reads all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from relevo.errors import FeedExpired
from relevo.kernel.events import reading
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.router")
HINTS_MAX = 2_000
"""Hints of a stripe that are read at once."""


class Hints(Struct):
    """Whom to look at again."""

    jobs: set[str] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    resources: bool = False
    more: bool = False
    """Whether the log has more."""


class Follower:
    """Where a matcher is in the log."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._positions: dict[int, int] = {}

    async def begin(self) -> None:
        """Stand at the head of the log."""
        state = await reading.look(self._database)
        heads = await reading.heads(self._database)
        self._positions = {one.id: heads[one.id] for one in state.stripes if one.kind == "subject"}

    async def read(self) -> Hints:
        """Return whom the log has named since the last time."""
        hints = Hints()
        rows = await self._database.fetch(
            SQL.hints, list(self._positions), list(self._positions.values()), HINTS_MAX
        )
        counts = dict.fromkeys(self._positions, 0)
        for stripe, lsn, job, worker, resource in rows:
            if lsn is None:
                raise FeedExpired(
                    f"stripe {stripe} of the event log was trimmed before its hints were read;"
                    " the rows tell"
                )
            self._positions[stripe] = lsn
            counts[stripe] += 1
            if job is not None:
                hints.jobs.add(job)
            if worker is not None:
                hints.workers.add(worker)
            if resource is not None:
                hints.resources = True
        hints.more = max(counts.values(), default=0) >= HINTS_MAX
        return hints
