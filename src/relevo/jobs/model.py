"""The nouns of system jobs: the record, a submission, lanes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.jobs import states

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg

    from relevo.jobs.batches.handles import BatchHandle
    from relevo.jobs.core.uniqueness import Uniqueness

Events = Literal["none", "ends", "all"]
Overlap = Literal["queue", "skip", "parallel"]
Missed = Literal["coalesce", "skip", "all"]

NAME_LENGTH_MAX: Final = 256
TOKEN_LENGTH_MAX: Final = 256
DATA_BYTES_MAX: Final = 128 * 1024 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024
SYSTEM: Final = UUID("00000000-0000-7000-8000-000000000002")
"""The system user: acts where no user asked, and owns jobs without an owner."""
UNSERVED: Final = timedelta(seconds=limits.JOB_UNSERVED_SECONDS_MAX)
"""How long a job waits for a host that has its handler; long enough for a rolling deployment."""
MISFIRE_GRACE_MAX: Final = 366 * 86_400.0
"""Maximum seconds that a run of a series may be late without a note."""


class Lane(Struct, frozen=True, kw_only=True):
    """How jobs of a lane run: slots per host, time limit, order, and the events that they send.

    `stall_after` is for lanes without a time limit: a job that neither checkpoints nor reports
    progress for that many seconds counts as timed out. With `shared_tokens` all jobs of a token
    form one chain; without it, each owner has a chain of its own. With `preempt`, which needs
    `priority`, a running job makes room at its next checkpoint if an urgent job finds no slot.
    `pool` and `limit` name governed resources: no more jobs are claimed than these have room for.
    """

    name: str
    slots: int = 8
    time_limit: float | None = 120.0
    stall_after: float | None = None
    events: Events = "ends"
    priority: bool = False
    max_running_per_owner: int | None = None
    shared_tokens: bool = False
    pool: str | None = None
    limit: str | None = None
    preempt: bool = False


LANES: Final = (
    Lane(name="default"),
    # 120 s for each step: a checkpoint starts the time anew.
    Lane(name="workflow", slots=4, time_limit=None, stall_after=120.0),
    Lane(name="bulk", slots=2, time_limit=None, stall_after=300.0),
    Lane(name="maintenance", slots=1, time_limit=None),
)
"""The lanes of every installation."""


class Recurrence(Struct, frozen=True, kw_only=True):
    """How a job recurs; `pattern` is the RFC 5545 subset of `relevo.kernel.recurrence`."""

    pattern: str
    start: datetime | None = None
    timezone: str | None = None
    overlap: Overlap = "queue"
    missed: Missed = "coalesce"
    misfire_grace: float = 3600.0
    stop_on_failure: bool = False


class JobOptions(TypedDict, total=False):
    """Options of a job whose name and lane are fixed, such as a bulk operation."""

    token: str | None
    start: datetime | None
    priority: int | None
    owner: UUID | None
    retain: bool
    on_failure: str
    system: bool
    options: Mapping[str, Any] | None


class NamedOptions(JobOptions, total=False):
    """Options of a submit for a handler by name."""

    name: str | None
    lane: str | None


class CommonOptions(NamedOptions, total=False):
    """Options of a submit that many jobs can have in common."""

    batch: UUID | BatchHandle | None


class BatchedOptions(NamedOptions, total=False):
    """Options of a submit into a batch."""

    tx: Any
    unique: Uniqueness | None


class SubmitOptions(CommonOptions, BatchedOptions, total=False):
    """Options of a submit, as `Jobs.submit` explains them."""

    recurrence: str | Recurrence | None
    timezone: str | None


class Submission(Struct, frozen=True, kw_only=True):
    """A checked job to store; `options` holds rare fields, as the SQL function takes them."""

    id: UUID
    handler: str
    data: str
    name: str | None = None
    token: str | None = None
    start: datetime | None = None
    lane: str | None = None
    priority: int | None = None
    owner: UUID | None = None
    options: dict[str, Any] | None = None


class JobAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that failed, or whose host was lost."""

    attempt: int
    outcome: Literal["failed", "lost"]
    host: str | None = None
    started_at: datetime | None = None
    """When this run began; None if its host was lost."""
    ended_at: datetime
    error_code: int | None = None
    message: str | None = None
    """The end of its text with the trace, at most 4,000 characters."""


class Job(Struct, frozen=True, kw_only=True):
    """A system job as it was when it was read."""

    id: UUID
    name: str
    handler: str
    lane: str
    status_code: int
    """The `statuscode` of other surfaces; `status` is the word for it."""
    sequence: int
    version: int
    operation_type: int
    priority: int
    token: str | None
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
    error_code: int | None
    message: str | None
    friendly: str | None
    host_name: str | None
    series: UUID | None
    pattern: str | None
    batch: UUID | None
    """The batch that it belongs to."""
    origin: UUID | None
    """The job that it repeats, perhaps with other data."""
    blocked: bool
    data: Any
    saved: Any
    result: Any
    attempts: tuple[JobAttempt, ...] = ()
    """Those that did not succeed, the last 20; `()` in lists without payload."""

    @property
    def status(self) -> str:
        """The status as a word, such as `succeeded`; `relevo.Status` has all eight."""
        return states.status_word(self.status_code)

    @property
    def state(self) -> str:
        """The state of its status: `ready`, `suspended`, `locked` or `completed`."""
        return states.state_word(self.status_code)

    @property
    def label(self) -> str:
        """The status as people read it."""
        return states.LABELS[self.status_code]

    @property
    def done(self) -> bool:
        """Whether it is completed."""
        return self.status_code in states.COMPLETED

    @classmethod
    def of(cls, row: asyncpg.Record) -> Job:
        """Return the record that a row holds."""
        plain = {name: row[name] for name in _PLAIN}
        if plain["progress"] is not None:
            plain["progress"] = round(plain["progress"], 6)  # stored in four bytes
        return cls(
            **plain, status_code=row["status"], blocked=row["chained"], data=_decoded(row["data"]),
            saved=_decoded(row["saved"]), result=_decoded(row["result"]),
            attempts=_ATTEMPTS.decode(row["attempts"]) if row["attempts"] else (),
        )  # fmt: skip


_PLAIN: Final = tuple(
    name
    for name in Job.__struct_fields__
    if name not in ("status_code", "data", "saved", "result", "attempts", "blocked")
)
_ATTEMPTS: Final = msgspec.json.Decoder(tuple[JobAttempt, ...])


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
