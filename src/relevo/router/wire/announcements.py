"""Builds the data of events from rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from relevo.router import events
from relevo.router.events import ChannelData, QueueData, SelectorData, Texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relevo.router.core.selectors import WorkerSelector
    from relevo.router.core.world import JobRow, OfferRow, WorkerRow
    from relevo.router.storage import Resources

OPERATORS: Final = {
    "equal": "Equal",
    "notEqual": "NotEqual",
    "lessThan": "Less",
    "lessThanOrEqual": "LessThanOrEqual",
    "greaterThan": "Greater",
    "greaterThanOrEqual": "GreaterThanOrEqual",
}

LABELS_MAX: Final = 1_000
"""Labels of queues that an event of a worker tells, all queues together."""


def texts(values: Mapping[str, Any]) -> Texts:
    """Return labels or tags with their values as text."""
    return {key: text(value) for key, value in values.items()} if values else {}


def text(value: Any) -> str:
    """Return a label's value as text: `true`, `7`, `2.5`, or the text that it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def pascal(name: str) -> str:
    """Return a status as events spell it."""
    return name[:1].upper() + name[1:]


def selectors(found: Iterable[WorkerSelector]) -> tuple[SelectorData, ...]:
    """Return selectors as events spell them."""
    return tuple(
        SelectorData(
            key=one.key, label_operator=OPERATORS[one.label_operator], value=one.value,
            ttl_seconds=one.expires_after_seconds, state=one.status,
            expiration_time=one.expires_at,
        )
        for one in found
    )  # fmt: skip


def job(row: JobRow) -> dict[str, Any]:
    """Return the fields of every event of a job."""
    return {
        "job_id": row.id, "channel_reference": row.channel_reference,
        "channel_id": row.channel_id, "queue_id": row.queue_id, "labels": texts(row.labels),
        "tags": texts(row.tags),
    }  # fmt: skip


def queue(resources: Resources, queue_id: str) -> QueueData:
    """Return a queue as events name it, also one that is not there."""
    found = resources.queues.get(queue_id)
    if found is None:
        return QueueData(id=queue_id, labels={})
    return QueueData(id=queue_id, name=found.name, labels=texts({**found.labels, "Id": queue_id}))


def worker(resources: Resources, row: WorkerRow) -> dict[str, Any]:
    """Return the fields of a worker in events."""
    return {
        "worker_id": row.id, "total_capacity": row.capacity,
        "queue_assignments": _queues(resources, row.queues),
        "channel_configurations": tuple(
            ChannelData(
                channel_id=channel.channel_id, capacity_cost_per_job=channel.capacity_cost_per_job,
                max_number_of_jobs=channel.max_number_of_jobs,
            ) for channel in row.channels
        ),
        "labels": texts(row.all_labels), "tags": texts(row.tags),
    }  # fmt: skip


def _queues(resources: Resources, ids: Iterable[str]) -> tuple[QueueData, ...]:
    """Name queues; labels of many that have many are left out, for an event has its bounds."""
    found, left = [], LABELS_MAX
    for one in ids:
        named = queue(resources, one)
        left -= len(named.labels)
        found.append(named if left >= 0 else QueueData(id=one, name=named.name, labels={}))
    return tuple(found)


def offer(row: OfferRow, of: JobRow) -> dict[str, Any]:
    """Return the fields of every event of an offer."""
    return {
        "worker_id": row.worker_id, "job_id": row.job_id, "offer_id": str(row.id),
        "channel_reference": of.channel_reference, "channel_id": row.channel_id,
        "queue_id": row.queue_id,
    }  # fmt: skip


def both(of: JobRow, to: WorkerRow) -> dict[str, Any]:
    """Return the fields of a job and a worker in events of their offer."""
    return {
        "job_priority": of.priority, "job_labels": texts(of.labels), "job_tags": texts(of.tags),
        "worker_labels": texts(to.all_labels), "worker_tags": texts(to.tags),
    }  # fmt: skip


def waiting(row: JobRow) -> events.JobWaitingForActivation:
    """Return the data of a job that waits for its caller."""
    return events.JobWaitingForActivation(
        **job(row), priority=row.priority,
        requested_worker_selectors=selectors(row.requested),
        attached_worker_selectors=selectors(row.attached),
        expired_requested_worker_selectors=selectors(_expired(row.requested)),
        expired_attached_worker_selectors=selectors(_expired(row.attached)),
        scheduled_on=row.scheduled_at, unavailable_for_matching=row.mode == "suspend",
    )  # fmt: skip


def _expired(found: Iterable[WorkerSelector]) -> list[WorkerSelector]:
    return [one for one in found if one.status == "expired"]
