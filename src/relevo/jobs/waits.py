"""Suspended jobs: the events and child jobs that they wait for."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from relevo.errors import InvalidValue
from relevo.jobs.commands import Ask
from relevo.jobs.errors import JobMissing, JobRefused, PlatformJob
from relevo.jobs.submitting import submission
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.binding import transaction_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import asyncpg

    from relevo.jobs.commands import JobCommands
    from relevo.jobs.model import Submission
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
WAKE_ROWS: Final = 500
NAME_LENGTH_MAX: Final = 256
UNWANTED: Final = timedelta(days=30)
"""How long an event is kept that no job waits for."""


class Waits:
    """Sends events, and wakes jobs whose deadline has passed or whose children have ended."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        return [Duty("jobs.events", 3_600.0, self.forget)]

    async def signal(self, event: str, key: str = "", data: Any = None, *, tx: Any = None) -> int:
        """Deliver an event to all jobs that wait for it; returns how many. If none does, it is kept
        for the first that will. With `tx`, a transaction of Relevo, it happens at the commit."""
        for what, value in (("event", event), ("key", key)):
            if len(value) > NAME_LENGTH_MAX or "\0" in value or (what == "event" and not value):
                raise InvalidValue(f"the {what} is text of at most {NAME_LENGTH_MAX} characters")
        text = msgspec.json.encode(data).decode()
        if tx is not None:
            tx = transaction_in(tx, self._database.schema)
            return int(await tx.fetchval(SQL.signal, event, key, text))
        got = (await self._database.write(SQL.signal, event, key, text))[0][0]
        self._wakeups.send(submission.TOPIC)
        return int(got)

    async def wake(self) -> int:
        """Wake jobs whose deadline has passed or whose children have ended; returns how many."""
        total = 0
        while woken := (await self._database.write(SQL.wake, WAKE_ROWS))[0][0]:
            total += woken
        if total:
            self._wakeups.send(submission.TOPIC)
        return total

    async def end_orphans(self, commands: JobCommands) -> int:
        """Cancel the jobs that a canceled or deleted job waited for; returns how many.

        No job needs their results any more.
        """
        rows = await self._database.fetch(SQL.orphans, WAKE_ROWS)
        for row in rows:
            with contextlib.suppress(JobRefused, JobMissing, PlatformJob):
                await commands.give(Ask(id=row["id"], command="cancel", user=row["by"]))
        return len(rows)

    async def forget(self) -> int:
        """Remove waits and events that are no longer needed; returns how many."""
        total = 0
        while gone := (await self._database.write(SQL.forget_waits, UNWANTED, WAKE_ROWS))[0][0]:
            total += gone
        return total


async def read(tx: Transaction, ctx: JobContext, step: int) -> list[asyncpg.Record]:
    """Return the waits of the job at a step; none if it has not reached that step."""
    return await tx.fetch(SQL.read_waits, ctx.id, step)


async def call(tx: Transaction, ctx: JobContext, step: int, children: Sequence[Submission]) -> None:
    """Submit children and let the job wait for the end of all; they exist if it commits."""
    for part, child in enumerate(children):
        await submission.submit_in(tx, child)
        await tx.execute(SQL.begin_wait, ctx.id, step, part, None, None, child.id, None, None)
    await ctx.suspend_in(tx)


async def wait_again(tx: Transaction, ctx: JobContext, step: int, rows: Sequence[Any]) -> None:
    """Go on waiting for children after the job was resumed early."""
    for row in rows:
        await tx.execute(
            SQL.begin_wait, ctx.id, step, row["part"], None, None, row["child"], None, None
        )
    await ctx.suspend_in(tx)


async def wait(
    tx: Transaction, ctx: JobContext, step: int, *, event: str | None = None, key: str = "",
    until: datetime | None = None, timeout: float | None = None,
) -> None:  # fmt: skip
    """Let the job wait for an event or an instant."""
    deadline = await tx.fetchval(
        SQL.begin_wait, ctx.id, step, 0, event, key if event else None, None, until, timeout
    )
    await ctx.suspend_in(tx, until=deadline, event=event is not None)


async def end(tx: Transaction, id: UUID, step: int) -> None:  # noqa: A002 - the word of the API
    """Remove the waits of a job at a step."""
    await tx.execute(SQL.end_waits, id, step)


async def lock_event(tx: Transaction, event: str, key: str) -> None:
    """Keep senders of an event away until the transaction is over."""
    await tx.execute(SQL.lock_event, event, key)


async def take_event(tx: Transaction, event: str, key: str) -> str | None:
    """Return the data of an event that came before anybody waited, None if none did."""
    row = await tx.fetchrow(SQL.take_event, event, key)
    return None if row is None else row["data"]
