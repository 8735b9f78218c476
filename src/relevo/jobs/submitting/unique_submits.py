"""Submits of unique jobs: the second of a key answers with the first job."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg
import msgspec

from relevo.errors import InvalidValue, Unavailable
from relevo.jobs.core import uniqueness
from relevo.jobs.submitting import submission
from relevo.kernel import callables
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.foreign import Function
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.jobs.core.uniqueness import Unique
    from relevo.jobs.model import Submission
    from relevo.jobs.registry import Handler
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
TOGETHER_MAX: Final = 100
TOGETHER_WAIT: Final = "100ms"
"""How long a group waits for a key that another transaction holds; then each submit waits alone."""
ALONE_WAIT: Final = "5s"
ALONE_AT_ONCE: Final = 3
IN_TRANSACTION: Final = Function(
    name="relevo.submit_unique_jobs_in", types=submission.IN_TRANSACTION.types,
    otherwise=submission.IN_TRANSACTION.otherwise,
)  # fmt: skip
"""Stores jobs in the caller's transaction; returns its numbers, and the jobs that exist."""


class _KeyBusy(Exception):
    """Another transaction submits a job of a key, and has not ended."""


class UniqueSubmits:
    """Stores jobs of which some are unique; single ones in groups of their own."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._alone = asyncio.Semaphore(ALONE_AT_ONCE)
        self._group: Group[Submission, UUID | None] = Group(
            "unique job submit", self._store, calls_max=TOGETHER_MAX, metrics=database.metrics
        )

    async def one(self, job: Submission) -> UUID:
        """Store a job; returns its id, or that of the job that exists."""
        first = await self._group.call(job, order=job.token)
        if first is None:  # another transaction holds a key of the group: wait for its own alone
            async with self._alone:
                existing = await self.many([submission.columns([job])])
            first = existing.get(job.id, job.id)
        return first

    async def many(self, batches: Sequence[Sequence[Sequence[Any]]]) -> dict[UUID, UUID]:
        """Store jobs in one transaction; returns those that exist, by the ids of their submits."""
        try:
            existing = await self._database.run(partial(self._write, batches, ALONE_WAIT))
        except _KeyBusy:
            raise _busy() from None
        self._wakeups.send(submission.TOPIC)
        return existing

    async def close(self) -> None:
        """Wait for calls under way."""
        await self._group.close()

    async def _store(self, jobs: Sequence[Submission]) -> list[UUID | Exception | None]:
        batches = [submission.columns(jobs)]
        try:
            existing = await self._database.run(partial(self._write, batches, TOGETHER_WAIT))
        except _KeyBusy:
            return [None] * len(jobs)
        self._wakeups.send(submission.TOPIC)
        return [existing.get(job.id, job.id) for job in jobs]

    @staticmethod
    async def _write(
        batches: Sequence[Sequence[Sequence[Any]]], wait: str, tx: Transaction
    ) -> dict[UUID, UUID]:
        await tx.execute(SQL.wait_for_keys, wait)
        existing: dict[UUID, UUID] = {}
        try:
            for arrays in batches:
                existing |= _existing(await tx.fetchval(SQL.submit_unique, *arrays))
        except asyncpg.LockNotAvailableError as error:
            raise _KeyBusy from error
        return existing


async def store_in(tx: Any, arrays: Sequence[Sequence[Any]], schema: str) -> tuple[str, Any]:
    """Store jobs in the caller's transaction; returns its numbers, and the jobs that exist."""
    answer = msgspec.json.decode(await IN_TRANSACTION.call(tx, arrays, schema), type=_StoredIn)
    return answer.tx, answer.existing


async def marked(job: Submission, unique: Unique, handler: Handler | None, data: Any) -> Submission:
    """Return a job with what makes it unique."""
    what = f"job {job.handler!r}"
    if (job.options or {}).get("series") is not None:
        raise InvalidValue(
            f"{what} has both unique and a recurrence; a series has one waiting run anyway, so"
            " leave unique out",
            pointer="unique",
        )
    decoded = msgspec.json.decode(job.data) if data is None or not isinstance(data, dict) else data
    uniqueness.check_fields(unique, decoded if isinstance(decoded, dict) else {}, what)
    key = None
    if callable(unique.key):
        if handler is None:
            key = await callables.call(unique.key, **decoded)
        else:
            arguments = handler.arguments(msgspec.json.decode(job.data))
            key = await handler.asked(unique.key, arguments)
        key = uniqueness.checked_key(what, key)
    options = {**(job.options or {}), "unique": uniqueness.stored(unique, key)}
    return msgspec.structs.replace(job, options=options)


class _StoredIn(msgspec.Struct, frozen=True):
    tx: str
    existing: dict[UUID, UUID]


def _existing(text: str) -> dict[UUID, UUID]:
    return msgspec.json.decode(text, type=dict[UUID, UUID])


def _busy() -> Unavailable:
    return Unavailable(
        f"another transaction is submitting a unique job of the same key and did not end within"
        f" {ALONE_WAIT}; nothing was stored, so submit it again"
    )
