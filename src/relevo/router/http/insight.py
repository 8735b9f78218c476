"""`/v1/router`: explanations of jobs and workers, trial classification, channels, overview."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.kernel.labels import Value
from relevo.kernel.operation import Operations
from relevo.kernel.pages import first
from relevo.router import overview
from relevo.router.core.classification import Classified, Unclassifiable
from relevo.router.http.surface import ResourceId
from relevo.router.overview import OfferStanding, QueueStanding
from relevo.router.storage import MANAGED_CHANNELS
from relevo.router.wire.documents import check_labels

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.router.core.attachments import Selector
    from relevo.router.core.eligibility import Obstacle


operation = Operations()


class ByRouterId(Struct, frozen=True, kw_only=True):
    """The id of the resource."""

    id: ResourceId


class SelectorShown(Struct, frozen=True, kw_only=True):
    """A condition on the labels of a worker or queue."""

    key: str
    label_operator: str
    value: Value | None = None


class OfferMade(Struct, frozen=True, kw_only=True):
    """An offer of a job, and its outcome."""

    offer_id: UUID
    worker_id: str
    state: str
    reason: str | None
    """Why it was revoked."""
    offered_at: datetime
    ended_at: datetime | None
    retry_at: datetime | None
    score: float | None
    """The worker's score, if the queue's mode is bestWorker."""


class CandidateShown(Struct, frozen=True, kw_only=True):
    """An eligible worker, with the values that rank it."""

    worker_id: str
    load_ratio: float
    idle_since: datetime
    score: float | None


class WorkersRuledOut(Struct, frozen=True, kw_only=True):
    """Workers with the same labels that the same condition rules out."""

    reason: str
    selector: SelectorShown | None
    """The condition that they do not meet."""
    labels: Mapping[str, Value]
    count: int
    workers: tuple[str, ...]
    """The first few by id."""


class JobExplained(Struct, frozen=True, kw_only=True):
    """Why a job is where it is."""

    job_id: str
    status: str
    says: str
    """In a sentence."""
    queue_id: str | None
    position: int | None
    """1 is next; null for a job that does not wait."""
    verdict: str | None
    """`chosen`: the first candidate is next. `offered`: as many offers are open as there may be.
    `nobody`: all workers are ruled out. `noQueue`: its queue is gone. Null if it does not wait."""
    candidates: tuple[CandidateShown, ...]
    """Eligible workers, in the order of the mode."""
    ruled_out: tuple[WorkersRuledOut, ...]
    offers: tuple[OfferMade, ...]
    """Those that were made, the latest first."""


class JobsNotForIt(Struct, frozen=True, kw_only=True):
    """Waiting jobs that a worker does not get for the same reason."""

    reason: str
    selector: SelectorShown | None
    queue_id: str
    channel_id: str
    count: int
    jobs: tuple[str, ...]
    """The first few in the order in which they wait."""


class WorkerExplained(Struct, frozen=True, kw_only=True):
    """Why a worker has its offers and assignments, or none."""

    worker_id: str
    state: str
    says: str
    """In a sentence."""
    load_ratio: float
    eligible_for: tuple[str, ...]
    """Waiting jobs that it could get, in their order."""
    ruled_out: tuple[JobsNotForIt, ...]


@operation(
    "router.explain.job",
    "GET /v1/router/jobs/{id}/explanation",
    "router:read",
    errors=(NotFound,),
    scope="job:{id}",
)
async def explain_job(services: Services, _: Principal, command: ByRouterId) -> JobExplained:
    """Explain why a job waits, which worker is next, and what rules out the others."""
    explanation = await services.app.router.explanations.job(command.id)
    next_match = explanation.next
    return JobExplained(
        job_id=explanation.job_id, status=explanation.status, says=explanation.says,
        queue_id=explanation.queue_id, position=explanation.position,
        verdict=None if next_match is None else next_match.verdict,
        candidates=() if next_match is None else tuple(
            CandidateShown(
                worker_id=candidate.worker, load_ratio=candidate.load_ratio, score=candidate.score,
                idle_since=datetime.fromtimestamp(candidate.idle_since, UTC),
            )
            for candidate in next_match.candidates
        ),
        ruled_out=() if next_match is None else tuple(
            WorkersRuledOut(
                reason=one.obstacle.reason, selector=_asked(one.obstacle), labels=one.labels,
                count=one.count, workers=one.workers,
            )
            for one in next_match.ruled_out
        ),
        offers=tuple(OfferMade(**msgspec.structs.asdict(offer)) for offer in explanation.offers),
    )  # fmt: skip


@operation(
    "router.explain.worker",
    "GET /v1/router/workers/{id}/explanation",
    "router:read",
    errors=(NotFound,),
    scope="worker:{id}",
)
async def explain_worker(services: Services, _: Principal, command: ByRouterId) -> WorkerExplained:
    """Say which waiting jobs a worker could get, and why no others."""
    explanation = await services.app.router.explanations.worker(command.id)
    next_match = explanation.next
    return WorkerExplained(
        worker_id=explanation.worker_id, state=explanation.state, says=explanation.says,
        load_ratio=explanation.load_ratio,
        eligible_for=() if next_match is None else next_match.eligible_for,
        ruled_out=() if next_match is None else tuple(
            JobsNotForIt(
                reason=one.obstacle.reason, selector=_asked(one.obstacle), queue_id=one.queue,
                channel_id=one.channel, count=one.count, jobs=one.jobs,
            )
            for one in next_match.ruled_out
        ),
    )  # fmt: skip


def _asked(obstacle: Obstacle) -> SelectorShown | None:
    return None if obstacle.selector is None else _selector(obstacle.selector)


def _selector(one: Selector) -> SelectorShown:
    return SelectorShown(key=one.key, label_operator=one.label_operator, value=one.value)


class TryClassification(ByRouterId, frozen=True, kw_only=True):
    """The job to classify on trial."""

    labels: Annotated[dict[str, Value], Meta(description="The labels of the job.")] = {}
    queue_id: Annotated[str, Meta(description="The queue that the job names.")] | None = None
    priority: Annotated[
        int,
        Meta(
            ge=limits.ROUTER_PRIORITY_MIN,
            le=limits.ROUTER_PRIORITY_MAX,
            description="The priority of the job.",
        ),
    ] = limits.ROUTER_PRIORITY_DEFAULT


class StepShown(Struct, frozen=True, kw_only=True):
    """The result of an attachment or rule of the policy."""

    place: str
    """Its place, as a JSON pointer into the policy."""
    kind: str
    value: Any
    """The decision of a condition, the number of the allocation drawn, the priority."""
    selectors: tuple[SelectorShown, ...]
    failure: str | None


class FailureShown(Struct, frozen=True, kw_only=True):
    """Why a classification has found nothing."""

    code: str
    message: str
    target: str | None


class ClassificationTried(Struct, frozen=True, kw_only=True):
    """The result of a trial classification."""

    classified: bool
    queue_id: str | None = None
    queue_by: str | None = None
    """The source of the queue: matching `selectors`, the `job`, or the policy's `fallback`."""
    priority: int | None = None
    attached: tuple[SelectorShown, ...] = ()
    """The worker selectors that the job would get."""
    errors: tuple[FailureShown, ...] = ()
    trail: tuple[StepShown, ...] = ()
    """Every step, in the order of the policy."""


@operation(
    "router.classify",
    "POST /v1/router/classification-policies/{id}:try",
    "router:manage",
    audit=False,
    errors=(NotFound,),
    scope="classification_policy:{id}",
)
async def try_classification(
    services: Services, _: Principal, command: TryClassification
) -> ClassificationTried:
    """Classify a job on trial, without creating it.

    Rules outside are really called.
    """
    check_labels({"/labels": command.labels})
    found = await services.app.router.explanations.classification(
        command.id, command.labels, queue_id=command.queue_id, priority=command.priority
    )
    trail = tuple(
        StepShown(
            place=one.place, kind=one.kind, value=one.value, failure=one.failure,
            selectors=tuple(map(_selector, one.selectors)),
        )
        for one in found.trail
    )  # fmt: skip
    match found:
        case Unclassifiable():
            errors = tuple(FailureShown(**msgspec.structs.asdict(error)) for error in found.errors)
            return ClassificationTried(classified=False, errors=errors, trail=trail)
        case Classified():
            return ClassificationTried(
                classified=True, queue_id=found.queue_id, queue_by=found.queue_by,
                priority=found.priority, attached=tuple(map(_selector, found.attached)),
                trail=trail,
            )  # fmt: skip


class ListChannels(Struct, frozen=True, kw_only=True):
    """Which page of channels."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class ChannelInfo(Struct, frozen=True, kw_only=True):
    """A channel that is known."""

    id: str
    name: str
    managed: bool
    """Whether it is one of those that come with the router."""


class DefineChannel(ByRouterId, frozen=True, kw_only=True):
    """A channel and its display name."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.ROUTER_LABEL_TEXT_LENGTH_MAX,
            description="For people.",
        ),
    ]


@operation("router.channels.list", "GET /v1/router/channels", "router:read")
async def list_channels(
    services: Services, _: Principal, command: ListChannels
) -> Page[ChannelInfo]:
    """List the channels that are known.

    Those that come with the router, and those that were defined, by id.
    """
    known = await services.app.router.channels()
    after = paging.decode(command.cursor, str) or ""
    shown = [
        ChannelInfo(id=one, name=name, managed=one in MANAGED_CHANNELS)
        for one, name in sorted(known.items())
        if one > after
    ]
    return paging.page(services.page_bytes, first(shown, command.limit), lambda one: one.id)


@operation("router.channels.define", "PUT /v1/router/channels/{id}", "router:manage")
async def define_channel(services: Services, _: Principal, command: DefineChannel) -> ChannelInfo:
    """Give a channel a name; in strict mode it can be used from then on."""
    await services.app.router.define_channel(command.id, command.name)
    managed = command.id in MANAGED_CHANNELS
    return ChannelInfo(id=command.id, name=command.name, managed=managed)


class ListStandings(Struct, frozen=True, kw_only=True):
    """Which page of queues, or which queue."""

    queue: Annotated[str, Meta(description="Only this queue.")] | None = None
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("router.queues.overview", "GET /v1/router/queues", "router:read")
async def queue_overview(
    services: Services, _: Principal, command: ListStandings
) -> Page[QueueStanding]:
    """Show the waiting, offered and assigned jobs and the workers of every queue."""
    after = paging.decode(command.cursor, str) or ""
    found = await overview.queues(
        services.app.database, queue_id=command.queue, after=after, limit=command.limit + 1
    )
    return paging.page(services.page_bytes, first(found, command.limit), lambda one: one.queue_id)


class ListOpenOffers(Struct, frozen=True, kw_only=True):
    """Which page of offers."""

    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


@operation("router.offers.open", "GET /v1/router/open-offers", "workers:read")
async def list_open_offers(
    services: Services, _: Principal, command: ListOpenOffers
) -> Page[OfferStanding]:
    """List the open offers of all workers, the newest first."""
    after = paging.decode(command.cursor, tuple[datetime, UUID])
    found = await overview.open_offers(services.app.database, after=after, limit=command.limit + 1)
    return paging.page(
        services.page_bytes, first(found, command.limit), lambda one: (one.offered_at, one.offer_id)
    )
