"""`/routing/jobs` and queue statistics: the requests of Azure's client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args

from msgspec import Meta, Struct

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    InvalidState,
    NotFound,
    ReferenceNotFound,
    UnassignLimitReached,
)
from relevo.http import paging
from relevo.http.access.authenticator import reaches
from relevo.http.paging import Page
from relevo.kernel.operation import OperationOptions, Operations, Versioned
from relevo.kernel.pages import Fetched
from relevo.router.core.jobs import Unassigned
from relevo.router.http.surface import (
    FIXED,
    MERGE_PATCH,
    ById,
    Listing,
    ListPlace,
    ListResources,
    PatchResource,
    one_of,
)
from relevo.router.listing import JobFilter, JobStatus
from relevo.router.wire.documents import bounded
from relevo.router.wire.exception_policies import Note
from relevo.router.wire.policies import Text
from relevo.router.wire.views import (
    RouterJob,
    RouterJobPositionDetails,
    RouterQueueStatistics,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services
    from relevo.router.jobs import May
    from relevo.router.listing import RouterListing as Found

T = TypeVar("T")
STATUSES: Final = ("all", "active", *get_args(JobStatus))
QUERY: Final = frozenset({"api-version"})
_SCOPE: Final = "job:{id}"


operation = Operations(fixed=FIXED, scope=_SCOPE)
_ACTION: Final[OperationOptions] = {
    "errors": (NotFound, InvalidState),
    "scope": _SCOPE,
    "query": QUERY,
}
_ANSWER: Final[OperationOptions] = {
    "errors": (NotFound, InvalidState, UnassignLimitReached),
    "scope": None,
    "checks_scopes": True,
    "query": QUERY,
}


class Done(Struct, frozen=True):
    """The action is done; there is no result."""


class ListRouterJobs(ListResources, frozen=True, kw_only=True, rename="camel"):
    """Which jobs, and which page of them; conditions combine with "and"."""

    status: Annotated[
        str,
        Meta(
            description="Only of this status; `active` is all that is not finished.",
            extra_json_schema={"enum": list(STATUSES)},
        ),
    ] = "all"
    queue_id: Annotated[str, Meta(description="Only of this queue.")] | None = None
    channel_id: Annotated[str, Meta(description="Only of this channel.")] | None = None
    classification_policy_id: (
        Annotated[str, Meta(description="Only of this classification policy.")] | None
    ) = None
    scheduled_before: (
        Annotated[datetime, Meta(description="Only those scheduled then or before.")] | None
    ) = None
    scheduled_after: (
        Annotated[datetime, Meta(description="Only those scheduled then or later.")] | None
    ) = None


class CancelRouterJob(ById, frozen=True, kw_only=True, rename="camel"):
    """The note and disposition code of a canceled job."""

    note: Note | None = None
    disposition_code: Text | None = None


class ByAssignment(ById, frozen=True, kw_only=True, rename="camel"):
    """Which assignment of which job."""

    assignment_id: Annotated[str, Meta(description="The assignment, of this job.")]


class CompleteJob(ByAssignment, frozen=True, kw_only=True, rename="camel"):
    """The note of a completed job."""

    note: Note | None = None


class CloseJob(ByAssignment, frozen=True, kw_only=True, rename="camel"):
    """The disposition code and note of a closed job, and when it is closed."""

    disposition_code: Text | None = None
    close_at: (
        Annotated[datetime, Meta(description="Not before then; unset or past is at once.")] | None
    ) = None
    note: Note | None = None


class UnassignJob(ByAssignment, frozen=True, kw_only=True, rename="camel"):
    """Whether an unassigned job is matched again."""

    suspend_matching: (
        Annotated[bool, Meta(description="Whether it waits for its caller from now on.")] | None
    ) = None


def page_of(
    services: Services, found: Found[T], show: Callable[[T], Any] = lambda item: item
) -> Page[Any]:
    """Return a page from a list of the router."""
    numbered = Fetched(list(zip(found.numbers, found.items, strict=True)), found.after is not None)
    return paging.page(
        services.page_bytes, numbered, lambda one: ListPlace(one[0]), show=lambda one: show(one[1])
    )


def after(command: ListResources) -> int:
    """Return where a page begins."""
    found = paging.decode(command.cursor, ListPlace)
    return 0 if found is None else found.number


@operation(
    "router.jobs.list", "GET /routing/jobs", "router:read", response=Listing[RouterJob], scope=None
)
async def list_jobs(services: Services, _: Principal, command: ListRouterJobs) -> Page[RouterJob]:
    """List jobs."""
    wanted = JobFilter(
        status=one_of(command.status, STATUSES, "status"),
        queue_id=command.queue_id,
        channel_id=command.channel_id,
        classification_policy_id=command.classification_policy_id,
        scheduled_before=_utc(command.scheduled_before),
        scheduled_after=_utc(command.scheduled_after),
    )
    limit = min(command.limit, limits.ROUTER_PAGE_ROWS_MAX)
    found = await services.app.router.list_jobs(wanted, after(command), limit)
    return page_of(services, found)


@operation("router.jobs.get", "GET /routing/jobs/{id}", "router:read", errors=(NotFound,))
async def get_job(services: Services, _: Principal, command: ById) -> Versioned[RouterJob]:
    """Show a job."""
    return _versioned(await services.app.router.show_job(command.id))


@operation(
    "router.jobs.patch",
    "PATCH /routing/jobs/{id}",
    "router:work",
    MERGE_PATCH,
    errors=(ConditionNotMet, ReferenceNotFound, InvalidState),
)
async def patch_job(
    services: Services, _: Principal, command: PatchResource
) -> Versioned[RouterJob]:
    """Create a job, or change it by a merge patch."""
    router = services.app.router
    return _versioned(await router.put_job(command.id, command.patch, command.conditions))


@operation("router.jobs.delete", "DELETE /routing/jobs/{id}", "router:work", errors=(InvalidState,))
async def delete_job(services: Services, _: Principal, command: ById) -> None:
    """Delete a job that is finished; again changes nothing."""
    await services.app.router.delete_job(command.id)


@operation(
    "router.jobs.position",
    "GET /routing/jobs/{id}/position",
    "router:read",
    errors=(NotFound, InvalidState),
)
async def position(services: Services, _: Principal, command: ById) -> RouterJobPositionDetails:
    """Say where a waiting job stands in its queue."""
    return await services.app.router.position(command.id)


@operation("router.jobs.cancel", "POST /routing/jobs/{id}:cancel", "router:work", _ACTION)
async def cancel_job(services: Services, _: Principal, command: CancelRouterJob) -> Done:
    """Finish a job without further work."""
    await services.app.router.cancel_job(
        command.id, note=command.note, disposition=command.disposition_code
    )
    return Done()


@operation("router.jobs.reclassify", "POST /routing/jobs/{id}:reclassify", "router:work", _ACTION)
async def reclassify_job(services: Services, _: Principal, command: ById) -> Done:
    """Classify a waiting job again."""
    await services.app.router.reclassify_job(command.id)
    return Done()


@operation(
    "router.jobs.complete",
    "POST /routing/jobs/{id}/assignments/{assignmentId}:complete",
    "offers:answer",
    _ANSWER,
)
async def complete_job(services: Services, principal: Principal, command: CompleteJob) -> Done:
    """Say that the work of an assignment is done."""
    await services.app.router.complete_job(
        command.id, command.assignment_id, note=command.note, may=_may(principal, command)
    )
    return Done()


@operation(
    "router.jobs.close",
    "POST /routing/jobs/{id}/assignments/{assignmentId}:close",
    "offers:answer",
    _ANSWER,
)
async def close_job(services: Services, principal: Principal, command: CloseJob) -> Done:
    """Finish a completed job and free its worker."""
    await services.app.router.close_job(
        command.id,
        command.assignment_id,
        disposition=command.disposition_code,
        note=command.note,
        at=command.close_at,
        may=_may(principal, command),
    )
    return Done()


@operation(
    "router.jobs.unassign",
    "POST /routing/jobs/{id}/assignments/{assignmentId}:unassign",
    "offers:answer",
    _ANSWER,
)
async def unassign_job(
    services: Services, principal: Principal, command: UnassignJob
) -> Unassigned:
    """Take a job back from its worker."""
    return await services.app.router.unassign_job(
        command.id,
        command.assignment_id,
        suspend=bool(command.suspend_matching),
        may=_may(principal, command),
    )


@operation(
    "router.queues.statistics",
    "GET /routing/queues/{id}/statistics",
    "router:read",
    errors=(NotFound,),
    scope="router_queue:{id}",
)
async def statistics(services: Services, _: Principal, command: ById) -> RouterQueueStatistics:
    """Show the length of a queue and its estimated wait."""
    router = services.app.router
    await router.policies.get("queues", command.id)
    return await router.statistics(command.id)


def _may(principal: Principal, command: ByAssignment) -> May | None:
    """Return whose assignments a key is for; None if it may touch all of the job's."""
    if reaches(principal, f"job:{command.id}"):
        return None
    return lambda worker_id: reaches(principal, f"worker:{worker_id}")


def _versioned(shown: Shown[RouterJob]) -> Versioned[RouterJob]:
    return Versioned(
        body=shown.view,
        etag=shown.view.etag,
        modified_at=shown.modified_at,
        created=shown.created,
    )


def _utc(instant: datetime | None) -> datetime | None:
    if instant is None:
        return None
    zoned = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    return bounded(zoned)
