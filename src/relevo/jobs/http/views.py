"""`/v1/job-views` and `/v1/lanes`: overviews of system jobs for operators.

They count the jobs of all owners: a key that may see fewer is refused.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, Generic, TypeVar

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
from relevo.kernel.operation import Operations

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


operation = Operations()


class Listed(Struct, Generic[T], frozen=True):
    """The rows of a view."""

    items: list[T]


class ViewAll(Struct, frozen=True, kw_only=True):
    """No options."""


class LookBack(Struct, frozen=True, kw_only=True):
    """How far a view looks back."""

    hours: Hours = 24.0


class LookAtSome(Struct, frozen=True, kw_only=True):
    """How much a view shows."""

    limit: Rows = limits.PAGE_ROWS_DEFAULT


class LookBackAtSome(LookBack, frozen=True, kw_only=True):
    """How far a view looks back, and how much it shows."""

    limit: Rows = limits.PAGE_ROWS_DEFAULT


@operation("jobs.views.counts", "GET /v1/job-views/counts", "jobs:read")
async def counts(services: Services, _: Principal, command: LookBack) -> Listed[JobCount]:
    """Count jobs by state, status and type: live ones, and lately completed ones."""
    return Listed(await services.app.jobs.views.counts(_since(command)))


@operation("jobs.views.running", "GET /v1/job-views/running", "jobs:read")
async def running(services: Services, _: Principal, command: LookAtSome) -> Listed[RunningJob]:
    """List running jobs and their progress."""
    return Listed(await services.app.jobs.views.running(limit=command.limit))


@operation("jobs.views.waiting", "GET /v1/job-views/waiting", "jobs:read")
async def waiting(services: Services, _: Principal, __: ViewAll) -> Listed[WaitingCount]:
    """Count jobs that wait for resources, by lane and age."""
    return Listed(await services.app.jobs.views.waiting())


@operation("jobs.views.suspended", "GET /v1/job-views/suspended", "jobs:read")
async def suspended(
    services: Services, _: Principal, command: LookAtSome
) -> Listed[SuspendedCount]:
    """Count suspended jobs by type and by the reason why they wait."""
    return Listed(await services.app.jobs.views.suspended(command.limit))


@operation("jobs.views.failures", "GET /v1/job-views/failures", "jobs:read")
async def failures(
    services: Services, _: Principal, command: LookBackAtSome
) -> Listed[FailureCount]:
    """Count failures by extension and code."""
    return Listed(await services.app.jobs.views.failures(_since(command), command.limit))


@operation("jobs.views.chains", "GET /v1/job-views/chains", "jobs:read")
async def chains(services: Services, _: Principal, command: LookAtSome) -> Listed[BlockedChain]:
    """List the tokens whose jobs wait for one of theirs."""
    return Listed(await services.app.jobs.views.chains(command.limit))


@operation("jobs.views.volumes", "GET /v1/job-views/volumes", "jobs:read")
async def volumes(services: Services, _: Principal, command: LookBackAtSome) -> Listed[Volume]:
    """Sum up the stored bytes of jobs, by name."""
    return Listed(await services.app.jobs.views.volumes(_since(command), command.limit))


@operation("lanes.list", "GET /v1/lanes", "jobs:read")
async def lanes(services: Services, _: Principal, __: ViewAll) -> Listed[LaneStanding]:
    """List the lanes of system jobs and their contents."""
    return Listed(await services.app.jobs.views.lanes())


VIEWS: Final = tuple(each for each in operation if each.name.startswith("jobs.views."))


def _since(command: LookBack) -> timedelta:
    return timedelta(hours=command.hours)
