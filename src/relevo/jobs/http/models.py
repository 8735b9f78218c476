"""Requests and answers of `/v1/jobs`.

The data of jobs, saved states, results and traces have a permission of
their own, `jobs:payload`; everything else of a job is seen with `jobs:read`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from relevo import limits
from relevo.http.paging import Cursor, Limit
from relevo.jobs.core.operation_types import label_of
from relevo.jobs.model import (
    Job,
)
from relevo.jobs.querying.views import shown_code

if TYPE_CHECKING:
    from collections.abc import Mapping

WAIT_SECONDS_MAX: Final = 30.0
COUNT_MAX: Final = 5_000
State = Literal["ready", "suspended", "locked", "completed"]
Status = Literal[
    "waiting_for_resources",
    "waiting",
    "in_progress",
    "pausing",
    "canceling",
    "succeeded",
    "failed",
    "canceled",
]
Instant = Annotated[datetime, Meta(tz=True)]
IfMatch = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=40,
        description='Only if the job is this version, as its etag says: `W/"7"`; `*` is any.',
    ),
]


class ChosenJobs(Struct, frozen=True, kw_only=True):
    """Which jobs."""

    state: Annotated[
        tuple[State, ...], Meta(max_length=4, description="Only in these states.")
    ] = ()
    status: Annotated[
        tuple[Status, ...], Meta(max_length=8, description="Only with these statuses.")
    ] = ()
    handler: Annotated[str, Meta(description="Only of this handler.")] | None = None
    lane: Annotated[str, Meta(description="Only of this lane.")] | None = None
    type: Annotated[int, Meta(ge=1, description="Only of this operation type.")] | None = None
    token: Annotated[str, Meta(description="Only of this token.")] | None = None
    series: Annotated[UUID, Meta(description="Only runs of this series.")] | None = None
    batch: Annotated[UUID, Meta(description="Only jobs of this batch.")] | None = None
    origin: Annotated[UUID, Meta(description="Only repetitions of this job.")] | None = None
    id_prefix: (
        Annotated[
            str,
            Meta(
                pattern="^([0-9A-Fa-f]-?){1,32}$",
                description="Only jobs whose id begins so.",
            ),
        ]
        | None
    ) = None
    created_after: Annotated[datetime, Meta(tz=True, description="From then on.")] | None = None
    created_before: Annotated[datetime, Meta(tz=True, description="Before then.")] | None = None
    filter: (
        Annotated[
            str,
            Meta(
                max_length=4_000,
                description="An OData filter over the columns of `asyncoperation`, such as"
                " `contains(name,'mail') and retrycount gt 0`.",
            ),
        ]
        | None
    ) = None


class CountJobs(ChosenJobs, frozen=True, kw_only=True):
    """Which jobs are counted."""


class ListJobs(ChosenJobs, frozen=True, kw_only=True):
    """Which jobs, and which page of them."""

    order: Annotated[
        Literal["newest", "oldest"], Meta(description="By the time of their submit.")
    ] = "newest"
    cursor: Cursor | None = None
    limit: Limit = limits.PAGE_ROWS_DEFAULT


class JobsCounted(Struct, frozen=True):
    """How many jobs match."""

    jobs: int
    more: bool
    """Whether there are more than that."""


class ByJob(Struct, frozen=True, kw_only=True):
    """Which job."""

    id: Annotated[UUID, Meta(description="The job's id.")]


class CommandJob(ByJob, frozen=True, kw_only=True):
    """Which job, in which version."""

    if_match: IfMatch | None = None


class CancelJob(CommandJob, frozen=True, kw_only=True):
    """What to cancel: the job, or its series."""

    series: Annotated[bool, Meta(description="End the series that it belongs to, too.")] = False


class PostponeJob(CommandJob, frozen=True, kw_only=True):
    """Until when a job waits."""

    until: Annotated[datetime, Meta(tz=True, description="When it may run.")]


class WaitForJob(ByJob, frozen=True, kw_only=True):
    """Whose end is waited for, and how long."""

    wait_seconds: Annotated[
        float,
        Meta(ge=0.0, le=WAIT_SECONDS_MAX, description="The answer comes then at the latest."),
    ] = 20.0


class JobView(Struct, frozen=True, kw_only=True):
    """A system job without its data."""

    id: UUID
    name: str
    handler: str
    lane: str
    state: str
    status: str
    status_code: int
    """As `statuscode` has it; the tens are the `statecode`."""
    operation_type: int
    type_label: str
    priority: int
    token: str | None
    blocked: bool
    """Whether it waits for another job of its token."""
    blocked_by: UUID | None
    """That job; null also if it is one that the caller may not see."""
    owner: UUID | None
    created_at: datetime
    modified_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    postpone_until: datetime | None
    attempt: int
    retries: int
    crashes: int
    run_seconds: float
    progress: float | None
    error_code: str | None
    friendly_message: str | None
    """The handler's message to users."""
    host: str | None
    series: UUID | None
    pattern: str | None
    batch: UUID | None
    """The batch that it belongs to."""
    origin: UUID | None
    """The job that it repeats, perhaps with other data."""
    sequence: int
    version: int


class JobUnblocked(Struct, frozen=True):
    """A job that another one no longer waits for."""

    taken_out: UUID
    """The job that left the chain. It keeps its state and its time, and runs apart from it."""


class JobAttemptView(Struct, frozen=True, kw_only=True):
    """An attempt that failed, or whose host was lost."""

    attempt: int
    outcome: Literal["failed", "lost"]
    host: str | None
    started_at: datetime | None
    """Null if its host was lost."""
    ended_at: datetime
    error_code: str | None
    message: str | None
    """The end of its text with the trace, at most 4,000 characters."""


class JobPayload(Struct, frozen=True, kw_only=True):
    """The data of a job, and its result."""

    id: UUID
    data: Any
    state: Any
    """The state that the handler saved to resume from."""
    result: Any
    message: str | None
    """The technical text of an error, with its trace."""
    attempts: list[JobAttemptView]
    """Those that did not succeed, the last 20."""


class JobWaited(Struct, frozen=True, kw_only=True):
    """Whether a job has ended, and how it is."""

    done: bool
    job: JobView | None
    """Null if its record was removed meanwhile: then it counts as succeeded."""
    deleted: bool = False
    """Whether it was deleted before it had ended."""


def payload_of(job: Job) -> JobPayload:
    """Return what of a job is shown to those who may see its data."""
    attempts = [
        JobAttemptView(
            **{**msgspec.structs.asdict(each), "error_code": shown_code(each.error_code)}
        )
        for each in job.attempts
    ]
    return JobPayload(
        id=job.id, data=job.data, state=job.saved, result=job.result, message=job.message,
        attempts=attempts,
    )  # fmt: skip


def view_of(job: Job, heads: Mapping[UUID, UUID | None]) -> JobView:
    """Return a job as it is shown; `heads` are the jobs waited for, None if not visible."""
    return JobView(
        id=job.id, name=job.name, handler=job.handler, lane=job.lane, state=job.state,
        status=job.status, status_code=job.status_code, operation_type=job.operation_type,
        type_label=label_of(job.operation_type), priority=job.priority, token=job.token,
        blocked=job.id in heads, blocked_by=heads.get(job.id), owner=job.owner,
        created_at=job.created_at, modified_at=job.modified_at, started_at=job.started_at,
        completed_at=job.completed_at, postpone_until=job.postpone_until, attempt=job.attempt,
        retries=job.retries, crashes=job.crashes, run_seconds=job.run_seconds,
        progress=job.progress, error_code=shown_code(job.error_code), friendly_message=job.friendly,
        host=job.host_name, series=job.series, pattern=job.pattern,
        batch=job.batch, origin=job.origin, sequence=job.sequence,
        version=job.version,
    )  # fmt: skip
