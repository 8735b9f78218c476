"""Bulk delete: the job (type 13) has an ordered set of queries; a child (23) works off each.

The parent keeps its slot and looks at the child at hand, so that it is paused and canceled as any
running job is, and heard by the child between chunks. Children have a lane of their own: in that of
their parents they could wait for slots that only these would free.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.bulk import engine, writing
from relevo.bulk.model import Part, Row, RowFailure, RowQuery
from relevo.bulk.notices import Notice
from relevo.bulk.sources import SQL, ImportRows, Items, table_of
from relevo.bulk.sources import Jobs as JobRows
from relevo.errors import NotFound
from relevo.jobs import codes, states, submission, waits
from relevo.jobs.errors import Fail, JobCanceled, JobMissing, JobRefused
from relevo.jobs.model import NAME_LENGTH_MAX, new_id
from relevo.jobs.operation_types import BULK_DELETE_SUBPROCESS, is_platform
from relevo.store import items, lifecycle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from relevo.bulk.rights import RightsOf
    from relevo.jobs.model import Submission
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.pipeline.registry import Registry
    from relevo.postgres import Database, Transaction

PART: Final = "relevo.bulk.delete.part"
PARTS_LANE: Final = "bulk-parts"
LOOK_SECONDS: Final = 0.5
"""How often a parent looks at its child, unless that ends before."""
ORPHANS_MAX: Final = 100
STOP_SECONDS: Final = 8.0
"""How long a canceled parent waits for its child: less than it is given itself."""


class Held(Exception):
    """A child waits until its parent goes on, or a parent until its child does."""


class Deletion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a bulk delete is asked for."""

    queries: tuple[RowQuery, ...]
    max_failures: int | None = None
    notice: Notice | None = None


class Standing(Struct, frozen=True, kw_only=True):
    """How far a bulk delete is: the query at hand, its child if it has begun, and the counts."""

    query: int = 0
    part: UUID | None = None
    success: int = 0
    failure: int = 0


class Deleting:
    """A bulk delete: one child after the other."""

    def __init__(self, jobs: Jobs, ctx: JobContext, asked: Deletion) -> None:
        self._jobs = jobs
        self._ctx = ctx
        self._asked = asked
        self._shown = -1.0

    async def run(self) -> dict[str, int] | None:
        """Let children work off the queries; returns the counts, None if it has to wait."""
        try:
            return await self._run()
        except Held:
            return None

    async def _run(self) -> dict[str, int]:
        ctx, queries = self._ctx, self._asked.queries
        stored = msgspec.json.encode(queries).decode()
        await self._jobs.database.write(
            SQL.begin, ctx.id, ctx.claim.operation_type, ctx.name, stored, ctx.owner,
            idempotent=True,
        )  # fmt: skip
        at = Standing() if ctx.state is None else msgspec.convert(ctx.state, Standing)
        while at.query < len(queries):
            if at.part is None:
                at = await self._begin(at)
            assert at.part is not None
            ended = await self._end_of(at, at.part)
            at = Standing(query=at.query + 1, success=ended["success"], failure=ended["failure"])
            await ctx.checkpoint(progress=at.query / len(queries), state=msgspec.to_builtins(at))
        return {"success": at.success, "failure": at.failure}

    async def _begin(self, at: Standing) -> Standing:
        """Submit the child of a query; that it was is one commit with the child (A30)."""
        child = self._child(at)
        at = msgspec.structs.replace(at, part=child.id)
        async with self._jobs.database.transaction() as tx:
            await submission.submit_in(tx, child)
            await tx.execute(SQL.begin_part, self._ctx.id, child.id, at.query)
            await self._ctx.checkpoint_in(tx, state=msgspec.to_builtins(at))
        self._jobs.wakeups.send(submission.TOPIC)
        return at

    def _child(self, at: Standing) -> Submission:
        claim, asked = self._ctx.claim, self._asked
        part = Part(
            parent=claim.id, index=at.query, query=asked.queries[at.query], series=claim.series,
            max_failures=asked.max_failures, failures_before=at.failure,
        )  # fmt: skip
        number = f": query {at.query + 1}"
        options = {
            "operation_type": BULK_DELETE_SUBPROCESS, "retain": True, "depth": claim.depth,
            "details": {"parent": str(claim.id)}, "correlation": str(claim.correlation),
            "correlation_at": claim.correlation_at.isoformat(),
        }  # fmt: skip
        return submission.checked(
            PART, msgspec.to_builtins(part), id=new_id(), owner=claim.owner, lane=PARTS_LANE,
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
                raise _failure(row, at.query)
            if row["status"] == states.WAITING and row["held"]:
                await _release(self._jobs, part)
            try:
                await self._show((at.query + (row["progress"] or 0.0)) / len(self._asked.queries))
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
        async with self._jobs.database.transaction() as tx:
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


def _failure(row: asyncpg.Record, index: int) -> Fail:
    if row["status"] == states.FAILED:
        told = row["friendly"] or f"query {index + 1} failed; the record of its job says why"
        return Fail(row["error_code"], told)
    what = "was canceled" if row["status"] == states.CANCELED else "was deleted"
    return Fail(None, f"the job of query {index + 1} {what}, so that the rest was not deleted")


async def _release(jobs: Jobs, job: UUID) -> None:
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


class Removing:
    """One query of a bulk delete: its rows are deleted."""

    def __init__(
        self, jobs: Jobs, registry: Registry | None, rights_of: RightsOf, ctx: JobContext
    ) -> None:
        self._jobs = jobs
        self._database: Database = jobs.database
        self._rights_of = rights_of
        self._registry = registry
        self._ctx = ctx
        self._part = msgspec.convert(ctx.data, Part)

    async def run(self) -> dict[str, int] | None:
        """Delete what the query finds; returns the counts, None if it has to wait."""
        part = self._part
        walk = engine.Walk(
            self._database, self._registry, self._ctx, rights_of=self._rights_of,
            max_failures=part.max_failures, part=part, heed=self._heed,
        )  # fmt: skip
        try:
            counts = await walk.over([part.query], self._apply)
        except Held:
            return None
        await self._ctx.write(SQL.end_part, part.parent, self._ctx.id)
        return counts

    async def _heed(self) -> None:
        """Wait while the parent is paused, end if it was canceled or is no more."""
        row = await self._database.fetchrow(SQL.parent, self._part.parent)
        status = None if row is None else row["status"]
        if row is not None and status == states.WAITING and row["waits"]:
            await _release(self._jobs, self._part.parent)
        elif status in (states.WAITING, states.PAUSING):
            async with self._database.transaction() as tx:
                await self._ctx.suspend_in(tx)
            self._ctx.settled = True
            raise Held
        if status is None or status == states.CANCELING:
            with contextlib.suppress(JobRefused, JobMissing):
                await self._jobs.command(self._ctx.id, "cancel")
            await self._ctx.checkpoint()

    async def _apply(self, tx: Transaction, source: Any, rows: Sequence[Row]) -> list[RowFailure]:
        match source:
            case JobRows():
                return await self._remove_jobs(tx, rows)
            case Items():
                return await engine.each(self._item)(tx, source, rows)
            case ImportRows():
                return await engine.each(self._imported)(tx, source, rows)
            case _:
                raise AssertionError(f"no source is {source!r}")

    async def _item(self, tx: Transaction, source: Items, row: Row) -> None:
        await writing.remove(tx, self._ctx, (source.container, source.table), row.key[0], row.body)

    async def _imported(self, tx: Transaction, source: ImportRows, row: Row) -> None:
        """Undo one row of an import; an item that is gone already is no failure."""
        item = row.body["item"]
        told = await tx.fetchrow(SQL.read_import, source.id)
        found = None if told is None else await lifecycle.find(self._database, told["container"])
        if found is not None:
            table = table_of(self._registry, RowQuery(container=found.info.name))
            place = (found.info.name, None if table is None else table.name)
            with contextlib.suppress(NotFound):
                async with tx.transaction():
                    pk = items.document(item, found.info).key.pk
                    await writing.remove(tx, self._ctx, place, pk, item)
        await tx.execute(SQL.mark_import_row, source.id, row.key[0], False, False)

    async def _remove_jobs(self, tx: Transaction, rows: Sequence[Row]) -> list[RowFailure]:
        """Delete jobs: records at once, others as the command does (A31)."""
        refused = [one for one in rows if not _completed(one) and _is_platform(one)]
        live = [one.body["id"] for one in rows if not _completed(one) and one not in refused]
        if live:
            keys = [row["key"] for row in await tx.fetch(SQL.gates, live)]
            await tx.execute(SQL.lock_gates, sorted(keys))
            gone = {row["id"] for row in await tx.fetch(SQL.delete_live, live, sorted(keys))}
            # Completed since it was read: a record like others.
            late = [one for one in live if one not in gone]
            await tx.fetch(SQL.delete_completed, late)
        done = [one.body["id"] for one in rows if _completed(one)]
        if done:
            await tx.fetch(SQL.delete_completed, done)
        text = codes.TEXTS[codes.PLATFORM_DELETE]
        return [RowFailure(one.id, codes.PLATFORM_DELETE, text) for one in refused]


def _completed(row: Row) -> bool:
    return row.body["status"] in states.COMPLETED


def _is_platform(row: Row) -> bool:
    return is_platform(row.body["operation_type"], system=row.body["system"])
