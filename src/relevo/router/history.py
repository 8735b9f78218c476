"""The recent past of a queue, from which waits are estimated."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.router.core import estimates
from relevo.router.core.estimates import HANDLING_MINUTES, Past

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)
DEPARTURES_MAX: Final = 1_000
"""Departures that are looked at; a busy queue's rate is known from its last minutes."""


class History(Struct, frozen=True):
    """How fast a queue has been moving, and the slots that serve it."""

    rate: float | None
    slots: int
    handling: float

    def minutes(self, position: int) -> int:
        """Return the estimated wait of the job at a position, in minutes."""
        return estimates.minutes(position, self.rate, slots=self.slots, handling=self.handling)


async def read(database: Database, queue_id: str) -> History:
    """Read the departures of the last hour, and the slots that there are."""
    rows = await database.fetch(SQL.departures, queue_id, DEPARTURES_MAX)
    ages = tuple(max(0.0, row["age"]) for row in rows)
    cut = len(rows) == DEPARTURES_MAX
    past = Past(ages, ages[-1]) if cut else Past(ages)
    handled = [row["handling"] for row in rows if row["handling"] is not None]
    return History(
        past.rate,
        await database.fetchval(SQL.slots, queue_id),
        statistics.fmean(handled) if handled else HANDLING_MINUTES,
    )
