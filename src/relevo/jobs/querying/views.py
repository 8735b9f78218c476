"""Ready-made views of system jobs for operators.

They count all live jobs, and jobs completed since `since`, so that the cost of a view does not
grow with the history. Beyond about 50,000 jobs, counts are estimates from a sample.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.jobs import states
from relevo.jobs.core import codes, operation_types
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.jobs")
SINCE_DEFAULT: Final = timedelta(days=1)
ROWS_DEFAULT: Final = 100
AGES: Final = (
    (10.0, "under 10 s"), (60.0, "under 1 min"), (600.0, "under 10 min"), (3_600.0, "under 1 h"),
    (86_400.0, "under 1 d"),
)  # fmt: skip
"""Age groups of waiting jobs, in seconds; older ones are in the last group."""
OLDEST: Final = "1 d and more"


class JobCount(Struct, frozen=True, kw_only=True):
    """How many jobs have a status and a type."""

    state: str
    status: str
    operation_type: int
    type_label: str
    jobs: int
    estimated: bool = False
    """Whether the number comes from a sample; that of failed or canceled jobs, whether there are
    more."""


class SuspendedCount(Struct, frozen=True, kw_only=True):
    """Suspended jobs of a type and handler, and the reason why they wait."""

    operation_type: int
    type_label: str
    handler: str
    jobs: int
    for_event: int
    for_time: int
    for_somebody: int
    """Paused, held or suspended by their handler: they go on when resumed."""
    since: datetime
    next_at: datetime | None


class WaitingCount(Struct, frozen=True, kw_only=True):
    """Ready jobs of a lane, by how long they have waited."""

    lane: str
    age: str
    jobs: int
    blocked: int
    """Of these, how many wait behind others of their chain or owner."""
    oldest: datetime


class FailureCount(Struct, frozen=True, kw_only=True):
    """How often an extension failed with a code."""

    extension: str
    code: str | None
    meaning: str | None
    jobs: int
    last_at: datetime
    last_id: UUID


class Volume(Struct, frozen=True, kw_only=True):
    """Bytes that jobs of a name store."""

    name: str
    jobs: int
    data_bytes: int
    state_bytes: int
    result_bytes: int


class BlockedChain(Struct, frozen=True, kw_only=True):
    """A chain in which jobs wait, and the job that they wait for."""

    token: str | None
    owner: UUID | None
    """Whose jobs they are; null if the jobs of all owners wait for each other."""
    jobs: int
    oldest: datetime
    head_id: UUID
    head_name: str
    head_status: str
    head_postponed_until: datetime | None
    head_started_at: datetime | None
    head_host: str | None


class LaneStanding(Struct, frozen=True, kw_only=True):
    """A lane as hosts configured it, and its contents."""

    name: str
    ready: int
    running: int
    suspended: int
    oldest: datetime | None
    oldest_seconds: float | None
    """The age of the oldest ready job, by the database's clock."""
    events: str
    priority: bool
    owner_cap: int | None
    shared_tokens: bool
    handlers: list[str]


class RunningJob(Struct, frozen=True, kw_only=True):
    """A job that a host runs at this moment."""

    id: UUID
    name: str
    lane: str
    handler: str
    status: str
    host_name: str | None
    attempt: int
    progress: float | None
    modified_at: datetime
    started_at: datetime | None


class Views:
    """The views of one database; they contain no data of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, since: timedelta = SINCE_DEFAULT) -> list[JobCount]:
        """Return how many jobs there are by state, status and type."""
        rows = await self._database.fetch(SQL.count_jobs, since)
        return [
            JobCount(
                state=states.state_word(row["status"]), status=states.status_word(row["status"]),
                operation_type=row["operation_type"],
                type_label=operation_types.label_of(row["operation_type"]), jobs=row["jobs"],
                estimated=row["estimated"],
            )
            for row in rows
        ]  # fmt: skip

    async def suspended(self, limit: int = ROWS_DEFAULT) -> list[SuspendedCount]:
        """Return why suspended jobs wait, by type."""
        rows = await self._database.fetch(SQL.suspended_jobs, limit)
        return [
            SuspendedCount(type_label=operation_types.label_of(row["operation_type"]), **row)
            for row in rows
        ]

    async def waiting(self) -> list[WaitingCount]:
        """Return how long ready jobs have waited for resources, by lane."""
        rows = await self._database.fetch(SQL.waiting_jobs, [limit for limit, _ in AGES])
        names = [name for _, name in AGES] + [OLDEST]
        return [
            WaitingCount(
                lane=row["lane"], age=names[row["bucket"]], jobs=row["jobs"],
                blocked=row["blocked"], oldest=row["oldest"],
            )
            for row in rows
        ]  # fmt: skip

    async def failures(
        self, since: timedelta = SINCE_DEFAULT, limit: int = ROWS_DEFAULT
    ) -> list[FailureCount]:
        """Return which extensions failed, with which codes, and how often."""
        rows = await self._database.fetch(SQL.failed_jobs, since, limit)
        return [
            FailureCount(
                extension=row["extension"], code=shown_code(row["error_code"]),
                meaning=codes.TEXTS.get(row["error_code"]), jobs=row["jobs"],
                last_at=row["last_at"], last_id=row["last_id"],
            )
            for row in rows
        ]  # fmt: skip

    async def volumes(
        self, since: timedelta = SINCE_DEFAULT, limit: int = ROWS_DEFAULT
    ) -> list[Volume]:
        """Return how much jobs store by name, the largest first."""
        rows = await self._database.fetch(SQL.job_volumes, since, limit)
        return [_struct(Volume, row) for row in rows]

    async def chains(self, limit: int = ROWS_DEFAULT) -> list[BlockedChain]:
        """Return the chains in which jobs wait, the longest first."""
        rows = await self._database.fetch(SQL.blocked_chains, limit)
        return [
            BlockedChain(**{
                **{name: value for name, value in row.items() if name != "chain"},
                "token": row["token"] or row["chain"],
                "head_status": states.status_word(row["head_status"]),
            })
            for row in rows
        ]  # fmt: skip

    async def lanes(self) -> list[LaneStanding]:
        """Return every lane with its contents."""
        return [
            _struct(LaneStanding, row) for row in await self._database.fetch(SQL.lane_standings)
        ]

    async def running(
        self, host: UUID | None = None, limit: int = ROWS_DEFAULT
    ) -> list[RunningJob]:
        """Return running jobs, on one host or on all, the longest first."""
        rows = await self._database.fetch(SQL.running_jobs, host, limit)
        return [RunningJob(**{**row, "status": states.status_word(row["status"])}) for row in rows]


def shown_code(code: int | None) -> str | None:
    """Return a stored code as errors show it."""
    return None if code is None else codes.shown(code)


def _struct(kind: type[Any], row: Any) -> Any:
    return msgspec.convert(dict(row), kind)
