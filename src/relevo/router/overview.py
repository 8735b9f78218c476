"""Overviews: queues with jobs and workers, open offers, and what a wall board shows besides."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load(__package__)
QUEUES_MAX: Final = 500
SKILLS_MAX: Final = 50


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


class QueueService(Struct, frozen=True, kw_only=True):
    """How quickly the jobs of a queue were taken lately."""

    queue_id: str
    assigned: int
    """Jobs that a worker took, of the latest 2,000."""
    within: int
    """Of these, how many within the target."""
    mean_wait_seconds: float


class SkillWaiting(Struct, frozen=True, kw_only=True):
    """A condition on workers, and how many jobs wait for one who meets it."""

    key: str
    label_operator: str
    value: Any = None
    waiting: int
    longest_wait_seconds: float


async def service_levels(
    database: Database, window: timedelta, target: timedelta
) -> list[QueueService]:
    """Return how many jobs of each queue were taken in a window, and how many within a target."""
    rows = await database.fetch(SQL.queue_service, window, target, QUEUES_MAX)
    return [QueueService(**dict(row)) for row in rows]


async def skills(database: Database) -> list[SkillWaiting]:
    """Return what waiting jobs ask of workers, the most wanted first."""
    return [
        SkillWaiting(
            **{name: value for name, value in row.items() if name != "value"},
            value=None if row["value"] is None else msgspec.json.decode(row["value"]),
        )
        for row in await database.fetch(SQL.waiting_by_skill, SKILLS_MAX)
    ]
