"""`/v1/job-views` and `/v1/lanes`: what operators of system jobs look at first (10.5).

They count the jobs of everybody: a key whose right reaches fewer is not let in (A27).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Struct

from relevo import limits
from relevo.jobs.querying.views import (
    BlockedChain,
    FailureCount,
    JobCount,
    LaneStanding,
    RunningJob,
    SuspendedCount,
    Volume,
    WaitingCount,
)
from relevo.kernel.operation import Operation

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

T = TypeVar("T")
HOURS_MAX: Final = 24.0 * 366
Hours = Annotated[
    float,
    Meta(gt=0.0, le=HOURS_MAX, description="Completed jobs count if they ended so lately."),
]
Rows = Annotated[
    int, Meta(ge=1, le=limits.PAGE_ROWS_MAX, description="The largest number of rows.")
]


class Listed(Struct, Generic[T], frozen=True):
    """The rows of a view."""

    items: list[T]


class Look(Struct, frozen=True, kw_only=True):
    """Nothing to choose."""


class LookBack(Struct, frozen=True, kw_only=True):
    """How far a view looks back."""

    hours: Hours = 24.0


class LookAtSome(Struct, frozen=True, kw_only=True):
    """How much a view shows."""

    limit: Rows = limits.PAGE_ROWS_DEFAULT


class LookBackAtSome(LookBack, frozen=True, kw_only=True):
    """How far a view looks back, and how much it shows."""

    limit: Rows = limits.PAGE_ROWS_DEFAULT


async def counts(services: Services, _: Principal, command: LookBack) -> Listed[JobCount]:
    """Return how many jobs there are by state, status and type."""
    return Listed(await services.app.jobs.views.counts(_since(command)))


async def suspended(
    services: Services, _: Principal, command: LookAtSome
) -> Listed[SuspendedCount]:
    """Return what suspended jobs wait for, by type."""
    return Listed(await services.app.jobs.views.suspended(command.limit))


async def waiting(services: Services, _: Principal, __: Look) -> Listed[WaitingCount]:
    """Return how long jobs have waited for resources."""
    return Listed(await services.app.jobs.views.waiting())


async def failures(
    services: Services, _: Principal, command: LookBackAtSome
) -> Listed[FailureCount]:
    """Return which extensions failed."""
    return Listed(await services.app.jobs.views.failures(_since(command), command.limit))


async def volumes(services: Services, _: Principal, command: LookBackAtSome) -> Listed[Volume]:
    """Return how much jobs store by name."""
    return Listed(await services.app.jobs.views.volumes(_since(command), command.limit))


async def chains(services: Services, _: Principal, command: LookAtSome) -> Listed[BlockedChain]:
    """Return the chains in which jobs wait."""
    return Listed(await services.app.jobs.views.chains(command.limit))


async def running(services: Services, _: Principal, command: LookAtSome) -> Listed[RunningJob]:
    """Return what runs at this moment."""
    return Listed(await services.app.jobs.views.running(limit=command.limit))


async def lanes(services: Services, _: Principal, __: Look) -> Listed[LaneStanding]:
    """Return every lane with what is in it."""
    return Listed(await services.app.jobs.views.lanes())


def _since(command: LookBack) -> timedelta:
    return timedelta(hours=command.hours)


def _view(name: str, summary: str, request: Any, response: Any, handler: Any) -> Operation:
    return Operation(
        name=f"jobs.views.{name}",
        method="GET",
        path=f"/v1/job-views/{name}",
        summary=summary,
        request=request,
        response=response,
        permission="jobs:read",
        handler=handler,
    )


VIEWS: Final = (
    _view(
        "counts",
        "Count jobs by state, status and type: live ones, and lately completed ones.",
        LookBack,
        Listed[JobCount],
        counts,
    ),
    _view(
        "running", "List what runs and how far it is.", LookAtSome, Listed[RunningJob], running
    ),
    _view(
        "waiting",
        "Count jobs that wait for resources, by lane and age.",
        Look,
        Listed[WaitingCount],
        waiting,
    ),
    _view(
        "suspended",
        "Count suspended jobs by type and by what they wait for.",
        LookAtSome,
        Listed[SuspendedCount],
        suspended,
    ),
    _view(
        "failures",
        "Count failures by extension and code.",
        LookBackAtSome,
        Listed[FailureCount],
        failures,
    ),
    _view(
        "chains",
        "List the tokens whose jobs wait for one of theirs.",
        LookAtSome,
        Listed[BlockedChain],
        chains,
    ),
    _view(
        "volumes", "Sum up what jobs store, by name.", LookBackAtSome, Listed[Volume], volumes
    ),
)  # fmt: skip

OPERATIONS: Final = (
    *VIEWS,
    Operation(
        name="lanes.list",
        method="GET",
        path="/v1/lanes",
        summary="List the lanes of system jobs and what is in them.",
        request=Look,
        response=Listed[LaneStanding],
        permission="jobs:read",
        handler=lanes,
    ),
)
