"""Bulk jobs whose work is done by children, one part after the other: parents and their parts.

The parent keeps its slot and looks at the child at hand, so that it is shown as running, and is
paused and canceled as any running job is; the child hears of it between chunks. Children have a
lane of their own: in that of their parents they could wait for slots that only these would free.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk.sources import SQL
from relevo.jobs import states, submission, waits
from relevo.jobs.errors import JobCanceled, JobMissing, JobRefused
from relevo.jobs.model import NAME_LENGTH_MAX
from relevo.jobs.submission import new_id
from relevo.kernel.running.verdicts import Fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from relevo.dataverse.bulk.model import RowQuery
    from relevo.jobs.model import Submission
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs

PARTS_LANE: Final = "bulk-parts"
LOOK_SECONDS: Final = 0.5
"""How often a parent looks at its child, unless that ends before."""
ORPHANS_MAX: Final = 100
STOP_SECONDS: Final = 8.0
"""How long a canceled parent waits for its child: less than it is given itself."""


class Held(Exception):
    """A child waits until its parent goes on, or a parent until its child does."""


class Standing(Struct, frozen=True, kw_only=True):
    """How far a parent is: the part at hand, its child if it has begun, and the counts."""

    query: int = 0
    part: UUID | None = None
    success: int = 0
    failure: int = 0


class Parent(ABC):
    """A job that lets children work off its parts."""

    handler: str
    """What runs a part."""
    operation_type: int
    """That of the children."""
    word: str
    """What people call a part."""

    def __init__(self, jobs: Jobs, ctx: JobContext) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._shown = -1.0

    @abstractmethod
    def count(self) -> int:
        """Return how many parts there are."""

    @abstractmethod
    def queries(self) -> Sequence[RowQuery]:
        """Return what is kept for people who look at the operation: which rows it is about."""

    @abstractmethod
    def asked_of(self, at: Standing) -> Mapping[str, Any]:
        """Return what the child of the part at hand is given; it has the fields of `model.Part`."""

    async def run(self) -> dict[str, int] | None:
        """Let children work off the parts; returns the counts, None if it has to wait."""
        try:
            return await self._run()
        except Held:
            return None

    async def _run(self) -> dict[str, int]:
        ctx, count = self._ctx, self.count()
        stored = msgspec.json.encode(self.queries()).decode()
        await self._jobs.database.write(
            SQL.begin, ctx.id, ctx.claim.operation_type, ctx.name, stored, ctx.owner,
            idempotent=True,
        )  # fmt: skip
        at = Standing() if ctx.state is None else msgspec.convert(ctx.state, Standing)
        while at.query < count:
            if at.part is None:
                at = await self._begin(at)
            assert at.part is not None
            ended = await self._end_of(at, at.part)
            at = Standing(query=at.query + 1, success=ended["success"], failure=ended["failure"])
            await ctx.checkpoint(progress=at.query / count, state=msgspec.to_builtins(at))
        return {"success": at.success, "failure": at.failure}

    async def _begin(self, at: Standing) -> Standing:
        """Submit the child of a part; that it was is one commit with the child."""
        child = self._child(at)
        at = msgspec.structs.replace(at, part=child.id)
        async with self._jobs.database.transaction(own=True) as tx:
            await submission.submit_in(tx, child)
            await tx.execute(SQL.begin_part, self._ctx.id, child.id, at.query)
            await self._ctx.checkpoint_in(tx, state=msgspec.to_builtins(at))
        self._jobs.wakeups.send(submission.TOPIC)
        return at

    def _child(self, at: Standing) -> Submission:
        claim = self._ctx.claim
        number = f": {self.word} {at.query + 1}"
        options = {
            "operation_type": self.operation_type, "retain": True, "depth": claim.depth,
            "details": {"parent": str(claim.id)}, "correlation": str(claim.correlation),
            "correlation_at": claim.correlation_at.isoformat(),
        }  # fmt: skip
        return submission.checked(
            self.handler, self.asked_of(at), id=new_id(), owner=claim.owner, lane=PARTS_LANE,
            name=claim.name[: NAME_LENGTH_MAX - len(number)] + number, options=options,
        )  # fmt: skip

    async def _end_of(self, at: Standing, part: UUID) -> asyncpg.Record:
        """Return how a child ended, once it has; what it is asked for reaches the child."""
        ctx = self._ctx
        while True:
            row = await self._jobs.database.fetchrow(SQL.read_part, ctx.id, part)
            assert row is not None
            if row["status"] == states.SUCCEEDED:
                return row
            if row["status"] is None or row["status"] in states.COMPLETED:
                await ctx.checkpoint()  # it may have heard of a cancel first
                raise self._failure(row, at.query)
            if row["status"] == states.WAITING and row["held"]:
                await release(self._jobs, part)
            try:
                await self._show((at.query + (row["progress"] or 0.0)) / self.count())
            except JobCanceled:
                if ctx.asked == states.CANCELING:
                    await self._stop(part)
                raise
            if row["paused"]:
                await self._wait(at, part)
            with contextlib.suppress(TimeoutError):
                await self._jobs.end_of(part, LOOK_SECONDS)

    async def _wait(self, at: Standing, part: UUID) -> None:
        """Give the slot back while somebody keeps the child waiting.

        The child wakes its parent when it goes on, and its end does so in any case.
        """
        async with self._jobs.database.transaction(own=True) as tx:
            await self._ctx.checkpoint_in(tx)
            self._ctx.check()  # who has paused the parent meanwhile resumes it
            await waits.end(tx, self._ctx.id, at.query)
            await waits.wait_again(tx, self._ctx, at.query, [{"part": 0, "child": part}])
        self._ctx.settled = True
        raise Held

    async def _show(self, progress: float) -> None:
        """Give a sign of life, and report progress if there is any."""
        if progress == self._shown:
            self._ctx.beaten_at = time.monotonic()
            self._ctx.check()
            return
        await self._ctx.checkpoint(progress=progress)
        self._shown = progress

    async def _stop(self, part: UUID) -> None:
        """Cancel a child and wait until it has stopped: a parent ends after its children."""
        with contextlib.suppress(JobRefused, JobMissing, TimeoutError):
            await self._jobs.command(part, "cancel")
            await self._jobs.end_of(part, STOP_SECONDS)

    def _failure(self, row: asyncpg.Record, index: int) -> Fail:
        which = f"{self.word} {index + 1}"
        if row["status"] == states.FAILED:
            told = row["friendly"] or f"{which} failed; the record of its job says why"
            return Fail(row["error_code"], told)
        what = "was canceled" if row["status"] == states.CANCELED else "was deleted"
        return Fail(None, f"the job of {which} {what}, so that the rest was not done")


async def heed(jobs: Jobs, ctx: JobContext, parent: UUID) -> None:
    """Let a child wait while its parent is paused, and end if that was canceled or is no more."""
    row = await jobs.database.fetchrow(SQL.parent, parent)
    status = None if row is None else row["status"]
    if row is not None and status == states.WAITING and row["waits"]:
        await release(jobs, parent)
    elif status in (states.WAITING, states.PAUSING):
        async with jobs.database.transaction(own=True) as tx:
            await ctx.suspend_in(tx)
        ctx.settled = True
        raise Held
    if status is None or status == states.CANCELING:
        with contextlib.suppress(JobRefused, JobMissing):
            await jobs.command(ctx.id, "cancel")
        await ctx.checkpoint()


async def release(jobs: Jobs, job: UUID) -> None:
    """Let a child or a parent go on that waits for the other."""
    await jobs.database.write(SQL.release, job)
    jobs.wakeups.send(submission.TOPIC)


async def end_orphans(jobs: Jobs) -> int:
    """Cancel children whose parent is over, also those that nobody runs; returns how many.

    A parent that waits is canceled without a host that could tell its child.
    """
    rows = await jobs.database.fetch(SQL.orphans, ORPHANS_MAX)
    for row in rows:
        with contextlib.suppress(JobRefused, JobMissing):
            await jobs.command(row["id"], "cancel")
    return len(rows)
