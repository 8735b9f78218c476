"""Events of the router: 22 public types, and one that only its matcher reads.

In the log a type has Relevo's name and its subject is the job or the worker, so that the events of
each are in order. Subscribers see Azure's names, subjects and spelling (`envelopes`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from relevo.kernel.events import EventType

Texts = dict[str, str]
"""Labels or tags; in events their values are always text."""


class _Data(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class SelectorData(_Data, frozen=True, kw_only=True):
    """A worker selector, as events spell it."""

    key: str
    label_operator: str
    value: Any = None
    ttl_seconds: float | None = None
    state: str
    expiration_time: datetime | None = None


class QueueData(_Data, frozen=True, kw_only=True):
    """A queue, as events name it."""

    id: str
    name: str | None = None
    labels: Texts


class ChannelData(_Data, frozen=True, kw_only=True):
    """A worker's channel, as events spell it."""

    channel_id: str
    capacity_cost_per_job: int
    max_number_of_jobs: int | None = None


class ErrorData(_Data, frozen=True, kw_only=True):
    """Why a classification failed."""

    code: str
    message: str
    target: str | None = None


class RouterJobData(_Data, frozen=True, kw_only=True):
    """The fields of every event of a job."""

    job_id: str
    channel_reference: str | None = None
    channel_id: str | None = None
    queue_id: str | None = None
    labels: Texts
    tags: Texts


class JobReceived(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.received`."""

    job_status: str
    classification_policy_id: str | None = None
    priority: int | None = None
    requested_worker_selectors: tuple[SelectorData, ...]
    scheduled_on: datetime | None = None
    unavailable_for_matching: bool


class JobClassified(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.classified`."""

    queue_details: QueueData
    classification_policy_id: str | None = None
    priority: int
    attached_worker_selectors: tuple[SelectorData, ...]


class JobClassificationFailed(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.classification_failed`."""

    classification_policy_id: str | None = None
    errors: tuple[ErrorData, ...] = ()


class JobQueued(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.queued`."""

    priority: int
    requested_worker_selectors: tuple[SelectorData, ...]
    attached_worker_selectors: tuple[SelectorData, ...]


class JobExceptionTriggered(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.exception_triggered`."""

    rule_key: str
    exception_rule_id: str


class JobSelectorsExpired(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.selectors_expired`."""

    expired_requested_worker_selectors: tuple[SelectorData, ...]
    expired_attached_worker_selectors: tuple[SelectorData, ...]


class JobAssignment(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.completed` and `job.unassigned`."""

    assignment_id: str
    worker_id: str


class JobClosed(JobAssignment, frozen=True, kw_only=True):
    """Data of `job.closed`."""

    disposition_code: str | None = None


class RouterJobCanceled(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.cancelled`."""

    note: str | None = None
    disposition_code: str | None = None
    worker_id: str | None = None
    """The worker that had the job, if any."""


class JobWaitingForActivation(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.waiting_for_activation`."""

    priority: int
    requested_worker_selectors: tuple[SelectorData, ...]
    attached_worker_selectors: tuple[SelectorData, ...]
    expired_requested_worker_selectors: tuple[SelectorData, ...]
    expired_attached_worker_selectors: tuple[SelectorData, ...]
    scheduled_on: datetime | None = None
    unavailable_for_matching: bool


class JobSchedulingFailed(RouterJobData, frozen=True, kw_only=True):
    """Data of `job.scheduling_failed`."""

    priority: int
    requested_worker_selectors: tuple[SelectorData, ...]
    attached_worker_selectors: tuple[SelectorData, ...]
    scheduled_on: datetime | None = None
    failure_reason: str


class OfferData(_Data, frozen=True, kw_only=True):
    """The fields of every event of an offer."""

    worker_id: str
    job_id: str
    offer_id: str
    channel_reference: str | None = None
    channel_id: str
    queue_id: str


class OfferIssued(OfferData, frozen=True, kw_only=True):
    """Data of `offer.issued`."""

    offered_on: datetime
    expires_on: datetime | None = None
    job_priority: int
    job_labels: Texts
    job_tags: Texts
    worker_labels: Texts
    worker_tags: Texts


class OfferAccepted(OfferData, frozen=True, kw_only=True):
    """Data of `offer.accepted`."""

    assignment_id: str
    job_priority: int
    job_labels: Texts
    job_tags: Texts
    worker_labels: Texts
    worker_tags: Texts


class OfferRevoked(OfferData, frozen=True, kw_only=True):
    """Data of `offer.revoked`."""

    reason: str


class WorkerNamed(_Data, frozen=True, kw_only=True):
    """Data of `worker.deregistered`."""

    worker_id: str


class WorkerData(WorkerNamed, frozen=True, kw_only=True):
    """Data of `worker.registered` and `worker.deleted`."""

    total_capacity: int
    queue_assignments: tuple[QueueData, ...]
    channel_configurations: tuple[ChannelData, ...]
    labels: Texts
    tags: Texts


class WorkerUpdated(WorkerData, frozen=True, kw_only=True):
    """Data of `worker.updated`."""

    updated_worker_properties: tuple[str, ...]


class Touched(_Data, frozen=True, kw_only=True):
    """Data of `touched`: nothing that the outside would care for."""

    job_id: str | None = None
    worker_id: str | None = None
    resource: str | None = None


PREFIX: Final = "relevo.router."
OFFERS: Final = PREFIX + "offer."
"""The prefix of the types of offer events."""
TOUCHED: Final = PREFIX + "touched"


def _type(name: str, payload: type[Struct], sentence: str) -> EventType:
    return EventType(name=PREFIX + name, payload=payload, sentence=sentence)


TYPES: Final = (
    _type("job.received", JobReceived, "A job was created."),
    _type("job.classified", JobClassified, "A classification found the job's queue."),
    _type("job.classification_failed", JobClassificationFailed, "A classification failed."),
    _type("job.queued", JobQueued, "A job entered a queue."),
    _type("job.exception_triggered", JobExceptionTriggered, "An exception rule fired for a job."),
    _type("job.selectors_expired", JobSelectorsExpired, "Selectors of a waiting job expired."),
    _type("job.unassigned", JobAssignment, "A job was taken back from its worker."),
    _type("job.completed", JobAssignment, "The work of a job is done."),
    _type("job.closed", JobClosed, "A job is finished and its worker's capacity returned."),
    _type("job.cancelled", RouterJobCanceled, "A job was canceled."),
    _type(
        "job.waiting_for_activation",
        JobWaitingForActivation,
        "A job is due or suspended and waits for its caller.",
    ),
    _type("job.scheduling_failed", JobSchedulingFailed, "A job could not be scheduled."),
    _type("job.deleted", RouterJobData, "A job was deleted."),
    _type("offer.issued", OfferIssued, "A job was offered to a worker."),
    _type("offer.accepted", OfferAccepted, "A worker accepted an offer."),
    _type("offer.declined", OfferData, "A worker declined an offer."),
    _type("offer.revoked", OfferRevoked, "An offer was taken back."),
    _type("offer.expired", OfferData, "An offer ran out of time."),
    _type("worker.registered", WorkerData, "A worker became available for offers."),
    _type("worker.updated", WorkerUpdated, "A worker changed."),
    _type("worker.deregistered", WorkerNamed, "A worker is no longer available for offers."),
    _type("worker.deleted", WorkerData, "A worker was deleted."),
    _type(
        "touched",
        Touched,
        "Something that matching looks at changed in a way that is not announced.",
    ),
)
