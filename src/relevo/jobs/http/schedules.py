"""`/v1/schedules`: the schedules that handlers declare."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.dataverse.http.requester import requester_of
from relevo.errors import Conflict, NotFound
from relevo.http import paging
from relevo.http.paging import Cursor, Limit, Page
from relevo.jobs.http.submits import JobSubmitted
from relevo.jobs.model import NAME_LENGTH_MAX, SYSTEM
from relevo.jobs.schedules.service import LastRun, Schedule, ScheduleState
from relevo.kernel import cpu
from relevo.kernel.operation import Operations
from relevo.kernel.pages import Fetched
from relevo.kernel.postgres import clock
from relevo.kernel.recurrence import Language

if TYPE_CHECKING:
    from relevo.http.access.authenticator import Principal
    from relevo.http.services import Services

RUNS_MAX: Final = 100
Tongue = Annotated[Language, Meta(description="Of the description: English or Spanish.")]

operation = Operations(errors=(NotFound,))


class ListSchedules(Struct, frozen=True, kw_only=True):
    """Which page of schedules."""

    language: Tongue = "en"
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class BySchedule(Struct, frozen=True, kw_only=True):
    """Which schedule."""

    name: Annotated[
        str, Meta(min_length=1, max_length=NAME_LENGTH_MAX, description="The name of its handler.")
    ]


class ShowSchedule(BySchedule, frozen=True, kw_only=True):
    """Which schedule, and how much of its future."""

    runs: Annotated[int, Meta(ge=0, le=RUNS_MAX, description="How many next runs are shown.")] = 10
    language: Tongue = "en"


class PauseSchedule(BySchedule, frozen=True, kw_only=True):
    """Which schedule, and for how long."""

    until: (
        Annotated[datetime, Meta(tz=True, description="Without it, until it is resumed.")] | None
    ) = None


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule, with its rule as it was declared and in words."""

    name: str
    rule: str
    description: str
    timezone: str | None
    state: ScheduleState
    next_run: datetime | None
    last_run: LastRun | None
    paused_until: datetime | None
    served: bool
    """Whether a host had the handler in the last 10 minutes."""


class ScheduleDetails(ScheduleView, frozen=True, kw_only=True):
    """A schedule with its policies and its next runs."""

    missed: str
    overlap: str
    declared_at: datetime
    series: UUID
    """The id of the series: `GET /v1/jobs?series=` lists its runs."""
    next_runs: list[datetime]


@operation("schedules.list", "GET /v1/schedules", "jobs:read", errors=())
async def list_schedules(
    services: Services, _: Principal, command: ListSchedules
) -> Page[ScheduleView]:
    """List schedules by name, with their rules in words and their next runs."""
    after = paging.decode(command.cursor, _Place)
    found = await services.app.jobs.schedules.list(
        after="" if after is None else after.name, limit=command.limit + 1
    )
    rows = Fetched(found[: command.limit], len(found) > command.limit)
    return paging.page(
        services.page_bytes,
        rows,
        lambda schedule: _Place(schedule.name),
        show=lambda schedule: _view(schedule, command.language),
    )


@operation("schedules.get", "GET /v1/schedules/{name}", "jobs:read")
async def show_schedule(services: Services, _: Principal, command: ShowSchedule) -> ScheduleDetails:
    """Show a schedule and its next runs."""
    schedule = await services.app.jobs.schedules.get(command.name)
    now = await clock.now(services.app.jobs.database)
    runs = await cpu.off_loop(schedule.next_runs, command.runs, now)
    return ScheduleDetails(**_fields(ScheduleDetails, schedule, command.language), next_runs=runs)


@operation("schedules.pause", "POST /v1/schedules/{name}:pause", "jobs:write")
async def pause_schedule(services: Services, _: Principal, command: PauseSchedule) -> None:
    """Let no run of a schedule start, for a while or until it is resumed."""
    await services.app.jobs.schedules.pause(command.name, until=command.until)


@operation(
    "schedules.resume", "POST /v1/schedules/{name}:resume", "jobs:write",
    errors=(NotFound, Conflict),
)  # fmt: skip
async def resume_schedule(services: Services, _: Principal, command: BySchedule) -> None:
    """Let a paused or ended schedule go on, with the next instant of its rule."""
    await services.app.jobs.schedules.resume(command.name)


@operation(
    "schedules.run", "POST /v1/schedules/{name}:run", "jobs:submit", status=201,
    scope="handler:{name}",
)  # fmt: skip
async def run_schedule(
    services: Services, principal: Principal, command: BySchedule
) -> JobSubmitted:
    """Submit a job of a schedule now; the schedule goes on as before."""
    who = await requester_of(services, principal)
    owner = None if who.user.id == SYSTEM else who.user.id
    job = await services.app.jobs.schedules.run(command.name, owner=owner)
    return JobSubmitted(job.id)


@operation("schedules.delete", "DELETE /v1/schedules/{name}", "jobs:delete")
async def delete_schedule(services: Services, _: Principal, command: BySchedule) -> None:
    """Remove a schedule whose handler is gone; a host that declares it brings it back."""
    await services.app.jobs.schedules.delete(command.name)


class _Place(Struct, frozen=True, array_like=True):
    name: str


def _view(schedule: Schedule, language: Language) -> ScheduleView:
    return ScheduleView(**_fields(ScheduleView, schedule, language))


def _fields(view: type[ScheduleView], schedule: Schedule, language: Language) -> dict[str, Any]:
    """Return the fields that a view and a schedule share, and the description."""
    shared = set(view.__struct_fields__) & set(Schedule.__struct_fields__)
    fields = {name: getattr(schedule, name) for name in shared}
    return {**fields, "description": schedule.describe(language)}
