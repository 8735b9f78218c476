"""Filtered lists of jobs and workers, page by page."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.router.wire import views

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from relevo.kernel.pages import Fetched
    from relevo.kernel.postgres import Database
    from relevo.router.wire.views import RouterJob, RouterWorker

T = TypeVar("T")
SQL = catalog.load(__package__)
JobStatus = Literal[
    "created",
    "pendingClassification",
    "classificationFailed",
    "pendingSchedule",
    "scheduled",
    "scheduleFailed",
    "waitingForActivation",
    "queued",
    "assigned",
    "completed",
    "closed",
    "cancelled",
]
UNFINISHED: Final = frozenset(
    {
        "created", "pendingClassification", "queued", "assigned", "classificationFailed",
        "completed", "pendingSchedule", "scheduled", "scheduleFailed", "waitingForActivation",
    }
)  # fmt: skip


class RouterListing(Struct, Generic[T], frozen=True):
    """A page, and where the next one begins."""

    items: list[T]
    after: int | None
    """None on the last page."""
    numbers: list[int]
    """The position of each item: the `after` of a page that begins behind it."""


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to list; conditions combine with "and"."""

    status: str = "all"
    """A status, `all`, or `active` for everything that is not finished."""
    queue_id: str | None = None
    channel_id: str | None = None
    classification_policy_id: str | None = None
    scheduled_before: datetime | None = None
    scheduled_after: datetime | None = None

    async def page(self, database: Database, after: int, limit: int) -> RouterListing[RouterJob]:
        """Return the jobs behind `after`."""
        unfinished = self.status == "active" or self.status in UNFINISHED
        found = await database.fetch_page(
            SQL.list_unfinished_jobs if unfinished else SQL.list_jobs, after, limit + 1,
            None if self.status in ("all", "active") else [self.status], self.queue_id,
            self.channel_id, self.classification_policy_id, self.scheduled_before,
            self.scheduled_after, rows=limit,
        )  # fmt: skip
        return _listing(found, views.job_in)


class WorkerFilter(Struct, frozen=True, kw_only=True):
    """Which workers to list; conditions combine with "and"."""

    state: Literal["all", "active", "draining", "inactive"] = "all"
    queue_id: str | None = None
    channel_id: str | None = None
    has_capacity: bool = False
    """Only those that could take one more job, on that channel or on any."""

    async def page(self, database: Database, after: int, limit: int) -> RouterListing[RouterWorker]:
        """Return the workers behind `after`."""
        found = await database.fetch_page(
            SQL.list_workers, after, limit + 1, None if self.state == "all" else self.state,
            self.queue_id, self.channel_id, self.has_capacity, rows=limit,
        )  # fmt: skip
        return _listing(found, views.worker_in)


def _listing(
    found: Fetched[asyncpg.Record], view: Callable[[asyncpg.Record], T]
) -> RouterListing[T]:
    numbers = [row["number"] for row in found.items]
    return RouterListing(list(map(view, found.items)), numbers[-1] if found.more else None, numbers)
