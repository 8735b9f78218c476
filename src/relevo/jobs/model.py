"""System jobs as Python sees them: the record, what is asked for at submit, and lanes."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict
from uuid import UUID

import msgspec
from asyncpg.pgproto import pgproto
from msgspec import Struct

from relevo.jobs import states

if TYPE_CHECKING:
    from collections.abc import Mapping

    import asyncpg

Events = Literal["none", "ends", "all"]
Overlap = Literal["queue", "skip", "parallel"]
Missed = Literal["coalesce", "skip", "all"]

NAME_LENGTH_MAX: Final = 256
TOKEN_LENGTH_MAX: Final = 256
DATA_BYTES_MAX: Final = 128 * 1024 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024
PRIORITY_DEFAULT: Final = 4
SYSTEM: Final = UUID("00000000-0000-7000-8000-000000000002")
"""The user who does what nobody asked for, and whose is what nobody owns."""
MISFIRE_GRACE_MAX: Final = 366 * 86_400.0
"""Seconds that a run of a series may be late without a word, at most."""


class Lane(Struct, frozen=True, kw_only=True):
    """How jobs of a lane run: how many at once on a host, how long, in what order, how told.

    `stall_after` is for lanes without a time limit: a job that neither checkpoints nor reports
    progress for so long counts as timed out. `shared_tokens` lets jobs of one token wait for each
    other whoever owns them; without it, those of each owner are a chain of their own.
    """

    name: str
    slots: int = 8
    time_limit: float | None = 120.0
    stall_after: float | None = None
    events: Events = "ends"
    priority: bool = False
    max_running_per_owner: int | None = None
    shared_tokens: bool = False


LANES: Final = (
    Lane(name="default"),
    # 120 s for each step: what a step has checkpointed does not count for the next.
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


class CommonOptions(TypedDict, total=False):
    """Options of a submit that many jobs can have in common."""

    name: str | None
    token: str | None
    start: datetime | None
    lane: str | None
    priority: int | None
    owner: UUID | None
    retain: bool
    on_failure: str
    system: bool
    options: Mapping[str, Any] | None


class SubmitOptions(CommonOptions, total=False):
    """Options of a submit, as `Jobs.submit` explains them."""

    tx: Any
    recurrence: str | Recurrence | None
    timezone: str | None


class Submission(Struct, frozen=True, kw_only=True):
    """One job to be made, checked; `options` holds what few jobs have, as the function takes it."""

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
    blocked: bool
    data: Any
    saved: Any
    result: Any

    @property
    def status(self) -> str:
        """Where it stands, such as `succeeded`; `relevo.Status` has all eight."""
        return states.status_word(self.status_code)

    @property
    def state(self) -> str:
        """What its status belongs to: `ready`, `suspended`, `locked` or `completed`."""
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
        )  # fmt: skip


_PLAIN: Final = tuple(
    name
    for name in Job.__struct_fields__
    if name not in ("status_code", "data", "saved", "result", "blocked")
)


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def new_id() -> UUID:
    """Return a key for a job."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[UUID]:
    """Return keys in ascending order, also after those of former calls (UUID version 7).

    So inserts stay at one end of the index. The first has 61 random bits, the others count on. They
    are of the driver's class, which is a UUID and made in a fifth of the time.
    """
    millis, nanos = divmod(time.time_ns(), 1_000_000)
    clock = millis << 80 | 0x7 << 76 | (nanos << 12) // 1_000_000 << 64
    first = clock | 0x2 << 62 | int.from_bytes(os.urandom(8), "big") >> 3
    return [pgproto.UUID(value.to_bytes(16, "big")) for value in range(first, first + count)]
