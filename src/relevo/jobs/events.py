"""Events of system jobs: one struct for all of them.

The database itself writes these events, in the transaction of each transition; a lane says which.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from relevo.kernel.events import EventType


class JobData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job at a transition, without its data, saved state and result."""

    id: UUID
    name: str
    lane: str
    operation_type: int
    before: int | None = None
    """The status that it had; missing for a new job."""
    after: int
    """The status that it has; -1 if the record is gone."""
    attempt: int
    host: str | None = None
    error_code: int | None = None
    created_on: datetime
    started_on: datetime | None = None


class SeriesData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A series of jobs."""

    id: UUID
    name: str | None = None


class BatchData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A batch of jobs, with the counts that were added up by then."""

    id: UUID
    name: str | None = None
    total: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    callback: UUID | None = None
    """The job that runs because all have ended."""


class BrakeData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An extension that failed too often, or does not any more."""

    extension: str
    until: datetime | None = None
    """When one of its jobs is tried; missing if the brake is off."""


PREFIX: Final = "relevo.job."


def _type(name: str, sentence: str) -> EventType:
    return EventType(name=PREFIX + name, payload=JobData, sentence=sentence)


TYPES: Final = (
    _type("submitted", "A job was submitted."),
    _type("started", "A host began to run a job."),
    _type("suspended", "A job waits: for its time, for an event or for somebody."),
    _type("resumed", "A job may run again."),
    _type("rerun", "A job that had failed or was canceled is run again, as somebody asked."),
    _type("retrying", "An attempt failed; the job is tried again later."),
    _type("lost", "The host that ran a job has ended."),
    _type("succeeded", "A job has succeeded."),
    _type("failed", "A job has failed."),
    _type("canceled", "A job was canceled."),
    _type("deleted", "The record of a job was removed."),
    _type("unblocked", "Others of its token no longer wait for a job, as an operator asked."),
    _type("pausing", "A running job was asked to yield."),
    _type("canceling", "A running job was asked to stop."),
    EventType(
        name="relevo.series.ended", payload=SeriesData, sentence="A series has no further run."
    ),
    EventType(name="relevo.batch.created", payload=BatchData, sentence="A batch was made."),
    EventType(
        name="relevo.batch.canceled",
        payload=BatchData,
        sentence="Somebody canceled a batch; its jobs follow.",
    ),
    EventType(
        name="relevo.batch.ended",
        payload=BatchData,
        sentence="A batch is closed, and all of its jobs have ended.",
    ),
    EventType(
        name="relevo.batch.reopened",
        payload=BatchData,
        sentence="A job of a batch that had ended is run again.",
    ),
    EventType(
        name="relevo.brake.on",
        payload=BrakeData,
        sentence="An extension failed too often; its jobs wait.",
    ),
    EventType(
        name="relevo.brake.off", payload=BrakeData, sentence="Jobs of an extension run again."
    ),
)
