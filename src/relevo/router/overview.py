"""How queues stand at a glance: who waits, what is offered and at work, who is there for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)


class QueueStanding(Struct, frozen=True, kw_only=True):
    """How a queue stands."""

    queue_id: str
    name: str | None
    waiting: int
    """Jobs that wait, those with open offers among them."""
    longest_wait_seconds: float | None
    """How long the one has waited that came first; null if none waits."""
    offers: int
    """Open ones."""
    assigned: int
    """Assignments that are not closed yet."""
    workers_active: int
    workers_draining: int
    workers_inactive: int


async def queues(
    database: Database, *, queue_id: str | None = None, after: str = "", limit: int = 100
) -> list[QueueStanding]:
    """Return how queues stand, by id: those behind `after`, or only one."""
    rows = await database.fetch(SQL.queue_overview, queue_id, after, limit)
    return [QueueStanding(**dict(row)) for row in rows]
