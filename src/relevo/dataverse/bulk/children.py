"""Bulk jobs that let child jobs do their work, one part after the other.

The parent keeps its slot and watches the current child. So it is shown as running and can be
paused and canceled like any running job; the child follows between chunks. Children have their own
lane: in the lane of their parents they could wait for slots that only the parents would free.
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
from relevo.jobs import states, waits
from relevo.jobs.errors import JobCanceled, JobMissing, JobRefused
from relevo.jobs.model import NAME_LENGTH_MAX
from relevo.jobs.submitting import submission
from relevo.jobs.submitting.submission import new_id
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
"""How often a parent checks a child that is still running."""
ORPHANS_MAX: Final = 100
STOP_SECONDS: Final = 8.0
"""How long a canceled parent waits for its child; shorter than the parent's own deadline."""


class WaitsForOther(Exception):
    """A child waits for its parent, or a parent for its child; this run has ended."""


class ParentProgress(Struct, frozen=True, kw_only=True):
    """The progress of a parent: the current part, its child once submitted, and the counts."""

    query: int = 0
    part: UUID | None = None
    success: int = 0
    failure: int = 0


class ParentJob(ABC):
    """A job that processes its parts through children."""

    handler: str
    """The handler of the children."""
    operation_type: int
    """The operation type of the children."""
    word: str
    """The word for a part in names and messages."""

    def __init__(
        self, jobs: Jobs, ctx: JobContext, queries: Sequence[RowQuery], count: int
    ) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._queries = queries
        """What the record of the operation shows."""
        self._count = count
        """The number of parts."""
        self._shown = -1.0

    @abstractmethod
    def parameters_of(self, at: ParentProgress) -> Mapping[str, Any]:
        """Return the parameters of the current child, with the fields of `model.ChildTask`."""

    async def run(self) -> dict[str, int] | None:
        """Run the children one by one; return the counts, or None if the job has to wait."""
        try:
            return await self._run()
        except WaitsForOther:
            return None

    async def _run(self) -> dict[str, int]:
        ctx, count = self._ctx, self._count
        stored = msgspec.json.encode(self._queries).decode()
        await self._jobs.database.write(
            SQL.begin, ctx.id, ctx.claim.operation_type, ctx.name, stored, ctx.owner,
            idempotent=True,
        )  # fmt: skip
        at = ParentProgress() if ctx.state is None else msgspec.convert(ctx.state, ParentProgress)
        while at.query < count:
            if at.part is None:
                at = await self._begin(at)
            assert at.part is not None
            ended = await self._end_of(at, at.part)
            at = ParentProgress(
                query=at.query + 1, success=ended["success"], failure=ended["failure"]
            )
            await ctx.checkpoint(progress=at.query / count, state=msgspec.to_builtins(at))
        return {"success": at.success, "failure": at.failure}

    async def _begin(self, at: ParentProgress) -> ParentProgress:
        """Submit the child of a part and record it, in one commit."""
        child = self._child(at)
        at = msgspec.structs.replace(at, part=child.id)
        async with self._jobs.database.transaction(own=True) as tx:
            await submission.submit_in(tx, child)
            await tx.execute(SQL.begin_part, self._ctx.id, child.id, at.query)
            await self._ctx.checkpoint_in(tx, state=msgspec.to_builtins(at))
        self._jobs.wakeups.send(submission.TOPIC)
        return at

    def _child(self, at: ParentProgress) -> Submission:
        claim = self._ctx.claim
        number = f": {self.word} {at.query + 1}"
        options = {
            "operation_type": self.operation_type, "retain": True, "depth": claim.depth,
            "details": {"parent": str(claim.id)}, "correlation": str(claim.correlation),
            "correlation_at": claim.correlation_at.isoformat(),
        }  # fmt: skip
        return submission.checked(
            self.handler, self.parameters_of(at), id=new_id(), owner=claim.owner, lane=PARTS_LANE,
            name=claim.name[: NAME_LENGTH_MAX - len(number)] + number, options=options,
        )  # fmt: skip

    async def _end_of(self, at: ParentProgress, part: UUID) -> asyncpg.Record:
        """Wait for the end of a child and return its record; a cancel is passed on to it."""
        ctx = self._ctx
        while True:
            row = await self._jobs.database.fetchrow(SQL.read_part, ctx.id, part)
            assert row is not None
            if row["status"] == states.SUCCEEDED:
                return row
            if row["status"] is None or row["status"] in states.COMPLETED:
                await ctx.checkpoint()  # raises if the parent was canceled too
                raise self._failure(row, at.query)
            if row["status"] == states.WAITING and row["held"]:
                await release(self._jobs, part)
            try:
                await self._show((at.query + (row["progress"] or 0.0)) / self._count)
            except JobCanceled:
                if ctx.asked == states.CANCELING:
                    await self._stop(part)
                raise
            if row["paused"]:
                await self._wait(at, part)
            with contextlib.suppress(TimeoutError):
                await self._jobs.end_of(part, LOOK_SECONDS)

    async def _wait(self, at: ParentProgress, part: UUID) -> None:
        """Free the slot while the child is paused.

        The child wakes its parent when it continues, and at the latest when it ends.
        """
        async with self._jobs.database.transaction(own=True) as tx:
            await self._ctx.checkpoint_in(tx)
            self._ctx.check()  # a parent paused meanwhile waits for its own resume
            await waits.end(tx, self._ctx.id, at.query)
            await waits.wait_again(tx, self._ctx, at.query, [{"part": 0, "child": part}])
        self._ctx.settled = True
        raise WaitsForOther

    async def _show(self, progress: float) -> None:
        """Report that the job is alive, and its progress if that has changed."""
        if progress == self._shown:
            self._ctx.beaten_at = time.monotonic()
            self._ctx.check()
            return
        await self._ctx.checkpoint(progress=progress)
        self._shown = progress

    async def _stop(self, part: UUID) -> None:
        """Cancel a child and wait for its end, because a parent ends after its children."""
        with contextlib.suppress(JobRefused, JobMissing, TimeoutError):
            await self._jobs.command(part, "cancel")
            await self._jobs.end_of(part, STOP_SECONDS)

    def _failure(self, row: asyncpg.Record, index: int) -> Fail:
        which = f"{self.word} {index + 1}"
        if row["status"] == states.FAILED:
            text = row["friendly"] or f"{which} failed; see the record of its job"
            return Fail(row["error_code"], text)
        what = "was canceled" if row["status"] == states.CANCELED else "was deleted"
        return Fail(None, f"the job of {which} {what}, so the remaining work was not done")


async def follow_parent(jobs: Jobs, ctx: JobContext, parent: UUID) -> None:
    """Make a child wait while its parent is paused, or end with a canceled or deleted parent."""
    row = await jobs.database.fetchrow(SQL.parent, parent)
    status = None if row is None else row["status"]
    if row is not None and status == states.WAITING and row["waits"]:
        await release(jobs, parent)
    elif status in (states.WAITING, states.PAUSING):
        async with jobs.database.transaction(own=True) as tx:
            await ctx.suspend_in(tx)
        ctx.settled = True
        raise WaitsForOther
    if status is None or status == states.CANCELING:
        with contextlib.suppress(JobRefused, JobMissing):
            await jobs.command(ctx.id, "cancel")
        await ctx.checkpoint()


async def release(jobs: Jobs, job: UUID) -> None:
    """Resume a child or a parent that waits for the other."""
    await jobs.database.write(SQL.release, job)
    jobs.wakeups.send(submission.TOPIC)


async def end_orphans(jobs: Jobs) -> int:
    """Cancel children whose parent has ended; return how many.

    A waiting parent runs on no host, so nothing else passes its cancellation on to the child.
    """
    rows = await jobs.database.fetch(SQL.orphans, ORPHANS_MAX)
    for row in rows:
        with contextlib.suppress(JobRefused, JobMissing):
            await jobs.command(row["id"], "cancel")
    return len(rows)
