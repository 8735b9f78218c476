"""An overview of queues: waiting, offered and assigned jobs, and workers; and of open offers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

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
    """The wait of the oldest job; null if none waits."""
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
    """Return the overview of queues, by id: those after `after`, or a single one."""
    rows = await database.fetch(SQL.queue_overview, queue_id, after, limit)
    return [QueueStanding(**dict(row)) for row in rows]


class OfferStanding(Struct, frozen=True, kw_only=True):
    """An open offer."""

    offer_id: UUID
    worker_id: str
    job_id: str
    queue_id: str
    channel_id: str
    capacity_cost: int
    offered_at: datetime
    expires_at: datetime | None


async def open_offers(
    database: Database, *, after: tuple[datetime, UUID] | None = None, limit: int = 100
) -> list[OfferStanding]:
    """Return the open offers of all workers, the newest first: those after `after`."""
    offered_at, offer_id = after or (None, None)
    rows = await database.fetch(SQL.offers_by_time, offered_at, offer_id, limit)
    return [OfferStanding(**dict(row)) for row in rows]
