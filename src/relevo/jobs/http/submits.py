"""Requests and answers of submits over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct

from relevo import limits
from relevo.jobs.core.uniqueness import FIELDS_MAX, KEY_LENGTH_MAX, UniqueState
from relevo.jobs.http.models import Instant
from relevo.jobs.model import (
    MISFIRE_GRACE_MAX,
    NAME_LENGTH_MAX,
    TOKEN_LENGTH_MAX,
    Missed,
    Overlap,
)


class RecurrenceBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job recurs."""

    pattern: Annotated[
        str,
        Meta(max_length=256, description="`FREQ=DAILY;INTERVAL=3`, `0 3 * * *` or `@every 90s`."),
    ]
    start: Instant | None = None
    timezone: (
        Annotated[str, Meta(max_length=64, description="IANA name; without it, UTC.")] | None
    ) = None
    overlap: Overlap = "queue"
    missed: Missed = "coalesce"
    misfire_grace: Annotated[float, Meta(ge=0.0, le=MISFIRE_GRACE_MAX)] = 3600.0
    stop_on_failure: bool = False


class UniqueBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs of the handler count as the same: by default those with equal data."""

    key: Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH_MAX)] | None = None
    fields: (
        Annotated[
            tuple[str, ...],
            Meta(max_length=FIELDS_MAX, description="Members of the data that are the key."),
        ]
        | None
    ) = None
    window: (
        Annotated[
            float,
            Meta(
                gt=0.0,
                le=limits.JOB_UNIQUE_SECONDS_MAX,
                description="Seconds; without it until the first job has ended.",
            ),
        ]
        | None
    ) = None
    states: (
        Annotated[
            tuple[UniqueState, ...],
            Meta(min_length=1, description="Those of the first job in which its key counts."),
        ]
        | None
    ) = None


class NewJob(Struct, frozen=True, kw_only=True):
    """What is said of a job that is to be made, beside its data."""

    handler: Annotated[
        str,
        Meta(min_length=1, max_length=NAME_LENGTH_MAX, description="What runs it, by name."),
    ]
    name: (
        Annotated[str, Meta(max_length=NAME_LENGTH_MAX, description="What people call it.")] | None
    ) = None
    token: (
        Annotated[
            str,
            Meta(
                max_length=TOKEN_LENGTH_MAX,
                description="Jobs of one token run one after the other, in order.",
            ),
        ]
        | None
    ) = None
    start: Annotated[datetime, Meta(tz=True, description="Not before this time.")] | None = None
    lane: (
        Annotated[str, Meta(max_length=64, description="Default: that of the handler.")] | None
    ) = None
    priority: (
        Annotated[int, Meta(ge=0, le=9, description="Counts in lanes that go by priority.")] | None
    ) = None
    unique: (
        Annotated[UniqueBody, Meta(description="A second submit of its key gets the first job.")]
        | None
    ) = None
    recurrence: (
        Annotated[RecurrenceBody, Meta(description="Makes it the first of a series.")] | None
    ) = None
    retain: Annotated[
        bool, Meta(description="Keep the record although the handler removes those of successes.")
    ] = False
    on_failure: Annotated[
        Literal["continue", "hold"],
        Meta(description="`hold` suspends the rest of its token if it fails."),
    ] = "continue"
    batch: (
        Annotated[UUID, Meta(description="The batch that it belongs to, which must be open.")]
        | None
    ) = None


class SubmitJob(NewJob, frozen=True, kw_only=True):
    """A job to be made."""

    data: Annotated[dict[str, Any], Meta(description="The arguments of the handler.")] | None = None


class SubmitJobs(NewJob, frozen=True, kw_only=True):
    """Jobs to be made that differ only in their data."""

    data: Annotated[
        tuple[dict[str, Any], ...],
        Meta(
            min_length=1, max_length=limits.JOBS_SUBMITTED_MAX,
            description="The arguments of the handler, of one job after the other.",
        ),
    ]  # fmt: skip


class JobsSubmitted(Struct, frozen=True):
    """Jobs that were made, in the order of their data."""

    ids: list[UUID]
    existed: list[UUID]
    """Those that are unique and existed before."""
    warning: str | None
    """That no host has ever registered the handler, with similar names."""


class RunJobAgain(Struct, frozen=True, kw_only=True):
    """Which job is repeated, and what is different; what is left out is as in that job."""

    id: Annotated[UUID, Meta(description="The job's id.")]
    data: Annotated[dict[str, Any], Meta(description="The arguments of the handler.")] | None = None
    name: (
        Annotated[str, Meta(max_length=NAME_LENGTH_MAX, description="What people call it.")] | None
    ) = None
    token: Annotated[str, Meta(max_length=TOKEN_LENGTH_MAX)] | None = None
    start: Annotated[datetime, Meta(tz=True, description="Not before this time.")] | None = None
    lane: (
        Annotated[str, Meta(max_length=64, description="Default: that of the handler.")] | None
    ) = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None


class JobSubmitted(Struct, frozen=True):
    """A job that was made."""

    id: UUID
    existed: bool = False
    """Whether it is unique, and this is the first job of its key."""
    warning: str | None = None
    """That no host has ever registered its handler, with similar names."""
