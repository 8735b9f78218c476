"""Jobs and workers as they are shown: what is unset is left out, what is empty is there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from relevo.router import storage
from relevo.router.model import Channel, JobNote
from relevo.router.wire.documents import ID_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import asyncpg

    from relevo.router.core.selectors import WorkerSelector
    from relevo.router.core.world import JobRow, OfferRow, WorkerRow
    from relevo.router.history import History


T = TypeVar("T")


class Shown(Struct, Generic[T], frozen=True):
    """A job or worker, when it was modified, and whether this very call has made it."""

    view: T
    modified_at: datetime
    created: bool = False


class _View(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class SelectorView(_View, frozen=True, kw_only=True):
    """A selector of a job, with what has become of it."""

    key: str
    label_operator: str
    value: str | int | float | bool | None = None
    expires_after_seconds: float | None = None
    expedite: bool
    status: str
    expires_at: datetime | None = None


class RouterJobAssignment(_View, frozen=True, kw_only=True):
    """An assignment of a job to a worker, from when to when."""

    assignment_id: str
    worker_id: str
    assigned_at: datetime
    completed_at: datetime | None = None
    closed_at: datetime | None = None
    unassigned_at: datetime | None = None


class RouterJob(_View, frozen=True, kw_only=True):
    """A job."""

    id: str
    etag: str
    status: str
    channel_id: str
    channel_reference: str | None = None
    queue_id: str | None = None
    classification_policy_id: str | None = None
    priority: int
    disposition_code: str | None = None
    enqueued_at: datetime | None = None
    scheduled_at: datetime | None = None
    requested_worker_selectors: tuple[SelectorView, ...]
    attached_worker_selectors: tuple[SelectorView, ...]
    labels: dict[str, Any]
    tags: dict[str, Any]
    notes: tuple[JobNote, ...]
    matching_mode: dict[str, Any]
    assignments: dict[str, RouterJobAssignment]


class RouterJobOffer(_View, frozen=True, kw_only=True):
    """An open offer."""

    offer_id: str
    job_id: str
    capacity_cost: int
    offered_at: datetime
    expires_at: datetime | None = None


class RouterWorkerAssignment(_View, frozen=True, kw_only=True):
    """A job that a worker has, until it is closed."""

    assignment_id: str
    job_id: str
    capacity_cost: int
    assigned_at: datetime


class ChannelView(_View, frozen=True, kw_only=True):
    """A channel that a worker serves."""

    channel_id: str
    capacity_cost_per_job: int
    max_number_of_jobs: int | None = None


class RouterWorker(_View, frozen=True, kw_only=True):
    """A worker, and what it holds."""

    id: str
    etag: str
    state: str
    queues: tuple[str, ...]
    capacity: int
    labels: dict[str, Any]
    tags: dict[str, Any]
    channels: tuple[ChannelView, ...]
    available_for_offers: bool
    max_concurrent_offers: int | None = None
    offers: tuple[RouterJobOffer, ...]
    assigned_jobs: tuple[RouterWorkerAssignment, ...]
    load_ratio: float


class RouterJobPositionDetails(_View, frozen=True, kw_only=True):
    """Where a waiting job stands."""

    job_id: str
    position: int
    """1 is next."""
    queue_id: str
    queue_length: int
    estimated_wait_time_minutes: int


class RouterQueueStatistics(_View, frozen=True, kw_only=True):
    """How a queue stands."""

    queue_id: str
    length: int
    estimated_wait_time_minutes: dict[str, int] | None = None
    """By priority."""
    longest_job_wait_time_minutes: float | None = None


def statistics(
    queue_id: str, rows: Sequence[asyncpg.Record], past: History
) -> RouterQueueStatistics:
    """Return how a queue stands, from the counts of its jobs by urgency."""
    if not rows:
        return RouterQueueStatistics(queue_id=queue_id, length=0)
    waited: timedelta = rows[0]["now"] - min(row["since"] for row in rows)
    last = {row["priority"]: _last(rows, row["priority"]) for row in rows}
    return RouterQueueStatistics(
        queue_id=queue_id, length=sum(row["jobs"] for row in rows),
        estimated_wait_time_minutes={
            str(priority): past.minutes(place)
            for priority, place in sorted(last.items(), reverse=True)
        },
        longest_job_wait_time_minutes=max(0.0, waited.total_seconds() / 60),
    )  # fmt: skip


def _last(rows: Sequence[asyncpg.Record], priority: int) -> int:
    """Return the place of the last job of a priority: expedited ones stand before all others."""
    usual = any(row["priority"] == priority and not row["expedite"] for row in rows)
    return sum(
        row["jobs"]
        for row in rows
        if (usual and row["expedite"]) or (row["expedite"] != usual and row["priority"] >= priority)
    )


def job(row: JobRow, assignments: Iterable[OfferRow], status: str | None = None) -> RouterJob:
    """Return a job with the assignments it has had; `status` if it is reported otherwise."""
    return RouterJob(
        id=row.id, etag=row.etag, status=status or row.status, channel_id=row.channel_id,
        channel_reference=row.channel_reference, queue_id=row.queue_id,
        classification_policy_id=row.policy_id, priority=row.priority,
        disposition_code=row.disposition, enqueued_at=row.enqueued_at,
        scheduled_at=row.scheduled_at,
        requested_worker_selectors=tuple(map(selector, row.requested)),
        attached_worker_selectors=tuple(map(selector, row.attached)),
        labels=row.labels, tags=row.tags,
        notes=tuple(sorted(row.notes, key=lambda one: one.added_at or row.created_at)),
        matching_mode=matching_mode(row),
        assignments={
            str(assignment.assignment_id): _assignment(assignment)
            for assignment in assignments if assignment.assigned_at is not None
        },
    )  # fmt: skip


def job_in(row: asyncpg.Record) -> RouterJob:
    """Return the job of a row with its assignments."""
    return job(storage.job_of(row), storage.held_in(row))


def worker_in(row: asyncpg.Record) -> RouterWorker:
    """Return the worker of a row with what it holds."""
    return worker(storage.worker_of(row), storage.held_in(row))


def matching_mode(row: JobRow) -> dict[str, Any]:
    """Return a job's matching mode as it was last set."""
    if row.schedule_at is None:
        return {"kind": row.mode}
    return {"kind": row.mode, "scheduleAt": row.schedule_at}


def selector(one: WorkerSelector) -> SelectorView:
    """Return a selector of a job."""
    return SelectorView(
        key=one.key, label_operator=one.label_operator, value=one.value,
        expires_after_seconds=one.expires_after_seconds, expedite=one.expedite,
        status=one.status, expires_at=one.expires_at,
    )  # fmt: skip


def worker(row: WorkerRow, held: Iterable[OfferRow]) -> RouterWorker:
    """Return a worker with the offers and assignments that take its capacity."""
    holding = sorted(held, key=lambda one: (one.offered_at, one.id))
    return RouterWorker(
        id=row.id, etag=row.etag, state=row.state, queues=tuple(row.queues),
        capacity=row.capacity, labels={**row.labels, ID_LABEL: row.id}, tags=row.tags,
        channels=tuple(map(_channel, row.channels)), available_for_offers=row.available,
        max_concurrent_offers=row.max_offers,
        offers=tuple(offer(one) for one in holding if one.state == "open"),
        assigned_jobs=tuple(_held(one) for one in holding if one.assigned_at is not None),
        load_ratio=row.used / row.capacity,
    )  # fmt: skip


def offer(one: OfferRow) -> RouterJobOffer:
    """Return an offer as its worker sees it."""
    return RouterJobOffer(
        offer_id=str(one.id), job_id=one.job_id, capacity_cost=one.cost,
        offered_at=one.offered_at, expires_at=one.expires_at,
    )  # fmt: skip


def _channel(one: Channel) -> ChannelView:
    return ChannelView(
        channel_id=one.channel_id, capacity_cost_per_job=one.capacity_cost_per_job,
        max_number_of_jobs=one.max_number_of_jobs,
    )  # fmt: skip


def _held(one: OfferRow) -> RouterWorkerAssignment:
    assert one.assigned_at is not None
    return RouterWorkerAssignment(
        assignment_id=str(one.assignment_id), job_id=one.job_id, capacity_cost=one.cost,
        assigned_at=one.assigned_at,
    )  # fmt: skip


def _assignment(one: OfferRow) -> RouterJobAssignment:
    assert one.assigned_at is not None
    return RouterJobAssignment(
        assignment_id=str(one.assignment_id), worker_id=one.worker_id,
        assigned_at=one.assigned_at, completed_at=one.completed_at,
        closed_at=one.ended_at if one.state == "closed" else None,
        unassigned_at=one.ended_at if one.state == "unassigned" else None,
    )  # fmt: skip
