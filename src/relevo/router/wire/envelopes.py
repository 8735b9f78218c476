"""The router's events in Azure's form: names, subjects and envelopes. Pure.

    shown = envelopes.cloud_event(recorded)     # None for internal events

Spelling inside `data` is that of the log already (`relevo.router.wire.announcements`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.router.events import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.kernel.events import Recorded

NAMES: Final[Mapping[str, str]] = {
    PREFIX + name: f"Microsoft.Communication.{shown}"
    for name, shown in {
        "job.received": "RouterJobReceived",
        "job.classified": "RouterJobClassified",
        "job.classification_failed": "RouterJobClassificationFailed",
        "job.queued": "RouterJobQueued",
        "job.exception_triggered": "RouterJobExceptionTriggered",
        "job.selectors_expired": "RouterJobWorkerSelectorsExpired",
        "job.unassigned": "RouterJobUnassigned",
        "job.completed": "RouterJobCompleted",
        "job.closed": "RouterJobClosed",
        "job.cancelled": "RouterJobCancelled",
        "job.waiting_for_activation": "RouterJobWaitingForActivation",
        "job.scheduling_failed": "RouterJobSchedulingFailed",
        "job.deleted": "RouterJobDeleted",
        "offer.issued": "RouterWorkerOfferIssued",
        "offer.accepted": "RouterWorkerOfferAccepted",
        "offer.declined": "RouterWorkerOfferDeclined",
        "offer.revoked": "RouterWorkerOfferRevoked",
        "offer.expired": "RouterWorkerOfferExpired",
        "worker.registered": "RouterWorkerRegistered",
        "worker.updated": "RouterWorkerUpdated",
        "worker.deregistered": "RouterWorkerDeregistered",
        "worker.deleted": "RouterWorkerDeleted",
    }.items()
}
"""From the log's names to Azure's; other events are never delivered."""
_TAILS: Final[Mapping[str, tuple[str, str]]] = {
    PREFIX + name: tail
    for name, tail in {
        "job.classified": ("queue", "queueId"),
        "job.classification_failed": ("classificationpolicy", "classificationPolicyId"),
        "job.queued": ("queue", "queueId"),
        "job.exception_triggered": ("exceptionrule", "ruleKey"),
        "job.selectors_expired": ("queue", "queueId"),
        "job.unassigned": ("assignment", "assignmentId"),
        "job.completed": ("assignment", "assignmentId"),
        "job.closed": ("assignment", "assignmentId"),
        "job.cancelled": ("disposition", "dispositionCode"),
        "offer.issued": ("job", "jobId"),
        "offer.accepted": ("job", "jobId"),
        "offer.declined": ("job", "jobId"),
        "offer.revoked": ("job", "jobId"),
        "offer.expired": ("job", "jobId"),
    }.items()
}
"""The end of an event's subject: a word, and the field of its data that follows."""


class CloudEvent(Struct, frozen=True, kw_only=True):
    """An event in the envelope of CloudEvents 1.0."""

    id: str
    source: str
    subject: str
    type: str
    time: datetime
    specversion: str = "1.0"
    data: msgspec.Raw


class EventGridEvent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An event in the envelope of Event Grid."""

    id: str
    topic: str
    subject: str
    event_type: str
    event_time: datetime
    data_version: str = "1.0"
    metadata_version: str = "1"
    data: msgspec.Raw


def cloud_event(recorded: Recorded) -> CloudEvent | None:
    """Return an event of the log in the envelope of CloudEvents; None if it is not announced."""
    name = NAMES.get(recorded.type)
    if name is None:
        return None
    return CloudEvent(
        id=recorded.id, source=source(recorded), subject=subject(recorded), type=name,
        time=recorded.at, data=recorded.body,
    )  # fmt: skip


def event_grid(recorded: Recorded) -> EventGridEvent | None:
    """Return an event of the log in the envelope of Event Grid; None if it is not announced."""
    name = NAMES.get(recorded.type)
    if name is None:
        return None
    return EventGridEvent(
        id=recorded.id, topic=source(recorded), subject=subject(recorded), event_type=name,
        event_time=recorded.at, data=recorded.body,
    )  # fmt: skip


def source(recorded: Recorded) -> str:
    """Return the source of an event: the installation of its log."""
    return f"/relevo/{recorded.log}"


def subject(recorded: Recorded) -> str:
    """Return the subject of an event, such as `job/7/channel/voice/queue/q`."""
    data: dict[str, Any] = recorded.data
    tail = _TAILS.get(recorded.type)
    begins = recorded.subject
    if begins.startswith("job/"):
        begins += f"/channel/{data.get('channelId', '')}"
    if tail is None or data.get(tail[1]) is None:
        return begins
    return f"{begins}/{tail[0]}/{data[tail[1]]}"
