"""The loop of all bulk operations: chunk by chunk, effects and position in one commit."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from relevo.dataverse.bulk import sources
from relevo.dataverse.bulk.model import (
    CHUNK_ROWS,
    BulkRow,
    ChildTask,
    Progress,
    RowFailure,
    RowQuery,
)
from relevo.dataverse.bulk.rights import RightsOf, allowed
from relevo.dataverse.bulk.sources import SQL, OwnJob
from relevo.errors import CallerError
from relevo.jobs.core import codes, outcomes
from relevo.jobs.errors import JobCanceled, JobPaused
from relevo.kernel import error_text
from relevo.kernel.postgres import clock
from relevo.kernel.running.verdicts import Fail, RetryLater

if TYPE_CHECKING:
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Database, Transaction
    from relevo.pipeline.registry import PipelineRegistry

Apply = Callable[["Transaction", Any, Sequence[BulkRow]], Awaitable[list[RowFailure]]]
"""Processes rows of a source in the transaction of their chunk; returns the failures."""
Outside = Callable[[Sequence[BulkRow]], Awaitable[list[RowFailure]]]
"""Processes rows before that transaction; it may take long, and must tolerate repetition."""
FollowParent = Callable[[], Awaitable[None]]
"""Checks between chunks whether the job may continue; raises if not."""
Run = Callable[["JobContext"], Awaitable[Any]]
"""A handler."""
ERROR_LENGTH_MAX = 2_000
"""Characters of an error that are stored for a failed row."""
_RANDOM = random.Random()  # noqa: S311 - jitter, not a secret


class BulkRun:
    """One run of a bulk job over its queries; a child (`part`) also counts for its parent."""

    def __init__(
        self, database: Database, registry: PipelineRegistry | None, ctx: JobContext, *,
        rights_of: RightsOf, max_failures: int | None = None, part: ChildTask | None = None,
        follow_parent: FollowParent | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._registry = registry
        self._ctx = ctx
        self._rights_of = rights_of
        self._most = max_failures
        self._part = part
        self._follow_parent = follow_parent
        self._outside: Outside | None = None
        self._steps: list[tuple[RowQuery, Apply | None]] = []
        self._uncounted = 0

    async def over(
        self, queries: Sequence[RowQuery], apply: Apply | None = None,
        outside: Outside | None = None, *, first: tuple[RowQuery, Apply] | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """Process all rows, one query after the other; return the counts.

        `first` is a query with its own function that runs before them and is not counted.
        """
        ctx = self._ctx
        self._outside = outside
        self._steps = [(query, apply) for query in queries]
        if first is not None:
            self._steps.insert(0, first)
        self._uncounted = len(self._steps) - len(queries)
        at = Progress() if ctx.state is None else msgspec.convert(ctx.state, Progress)
        stored = msgspec.json.encode(queries).decode()
        kind = ctx.claim.operation_type
        await self._database.write(
            SQL.begin, ctx.id, kind, ctx.name, stored, ctx.owner, idempotent=True
        )
        while at.query < len(self._steps):
            await self._look()
            at = msgspec.structs.replace(at, since=at.since or await clock.now(self._database))
            at = await self._walk(at)
            at = Progress(query=at.query + 1, success=at.success, failure=at.failure)
        return {"success": at.success, "failure": at.failure}

    async def _opened(self, query: RowQuery, at: Progress) -> Any:
        ctx, part = self._ctx, self._part
        assert at.since is not None
        asker = await sources.asker_of(self._database, ctx.owner, query, at.since)
        own = OwnJob(ctx.id, ctx.claim.series) if part is None else OwnJob(part.parent, part.series)
        return await sources.opened(self._database, query, own, self._registry, asker)

    async def _allowed(self, query: RowQuery) -> RowQuery:
        """Narrow a query to the rights its owner has now; raises `Fail` without any.

        Item writes do not check the owner themselves, so it is done here, for every chunk.
        """
        owner = self._ctx.owner
        if owner is not None and await self._database.fetchval(SQL.kept_out, owner):
            raise Fail(
                codes.FORBIDDEN, f"user {owner} is disabled, so its jobs change no data; enable"
                " the user, or submit the job as another user",
            )  # fmt: skip
        if not query.by_key:
            return query
        return allowed(query, owner, await self._rights_of(owner))

    async def _look(self) -> None:
        """Raise if the job or its parent was paused or canceled."""
        self._ctx.check()
        if self._follow_parent is not None:
            await self._follow_parent()

    async def _walk(self, at: Progress) -> Progress:
        query, _ = self._steps[at.query]
        allowed_query = await self._allowed(query)
        source = await self._opened(allowed_query, at)
        if at.highest is None:
            bounds = await source.bounds()
            if bounds is None:
                return at
            at = msgspec.structs.replace(at, highest=bounds.highest, total=bounds.total)
        assert at.highest is not None
        before = 0 if self._part is None else self._part.failures_before
        while rows := await source.page(at.after, at.highest, CHUNK_ROWS):
            if (now := await self._allowed(query)) != allowed_query:
                allowed_query, source = now, await self._opened(now, at)
                continue
            at = await self._take(source, at, rows)
            await self._look()
            if self._most is not None and before + at.failure > self._most:
                raise Fail(
                    None, f"{before + at.failure} rows failed, more than max_failures={self._most};"
                    f" the first {at.success + at.failure} rows were processed",
                )  # fmt: skip
        return at

    async def _take(self, source: Any, at: Progress, rows: Sequence[BulkRow]) -> Progress:
        """Process a chunk; its effects, end position and counts are one commit."""
        _, apply = self._steps[at.query]
        failures = [] if self._outside is None else await self._outside(rows)
        async with self._database.transaction(own=True) as tx:
            if apply is not None:
                with self._ctx.fenced_at_end(tx):
                    failures = await apply(tx, source, rows)
            at = msgspec.structs.replace(at, after=rows[-1].key, done=at.done + len(rows))
            if at.query >= self._uncounted:
                at = msgspec.structs.replace(
                    at, success=at.success + len(rows) - len(failures),
                    failure=at.failure + len(failures),
                )  # fmt: skip
                await self._count(tx, at.query - self._uncounted, len(rows), failures)
            share = min(1.0, at.done / at.total) if at.total else 1.0
            await self._ctx.checkpoint_in(
                tx, progress=(at.query + share) / len(self._steps), state=msgspec.to_builtins(at)
            )
        return at

    async def _count(
        self, tx: Transaction, index: int, rows: int, failures: Sequence[RowFailure]
    ) -> None:
        """Count the rows of a chunk; failures of a child are recorded for its parent."""
        jobs = [self._ctx.id]
        if self._part is not None:
            jobs, index = [*jobs, self._part.parent], self._part.index
        if failures:
            await tx.execute(
                SQL.record_failures, jobs[-1], index, [failure.row_id for failure in failures],
                [failure.code for failure in failures], [failure.message for failure in failures],
            )  # fmt: skip
        await tx.execute(SQL.advance, jobs, index, rows - len(failures), len(failures))


def each(act: Callable[[Transaction, Any, BulkRow], Awaitable[None]]) -> Apply:
    """Return a function that processes rows singly: a failing row undoes only itself."""

    async def apply(tx: Transaction, source: Any, rows: Sequence[BulkRow]) -> list[RowFailure]:
        failures = []
        for row in rows:
            try:
                async with tx.transaction():
                    await act(tx, source, row)
            except Exception as error:
                failures.append(failure_of(row, error))
        return failures

    return apply


def failure_of(row: BulkRow, error: Exception) -> RowFailure:
    """Return the failure of a row; errors that are not the row's fault are raised again."""
    if isinstance(error, JobCanceled | JobPaused | RetryLater):
        raise error
    outcome = outcomes.classify(error, workflow=False, retries=0, random=_RANDOM)
    if outcome.event == "retry":
        raise error
    message = error_text.message(error, ERROR_LENGTH_MAX)
    text = outcome.friendly or f"{type(error).__name__}: {message}"
    return RowFailure(row.id, outcome.error_code or codes.HANDLER_FAILED, text[:ERROR_LENGTH_MAX])


def explained(function: Run) -> Run:
    """Return a handler whose caller errors become the job's message, not only a traceback."""

    async def run(ctx: JobContext) -> Any:
        try:
            return await function(ctx)
        except CallerError as error:
            outcome = outcomes.classify(error, workflow=False, retries=0, random=_RANDOM)
            if outcome.event != "fail":
                raise
            raise Fail(outcome.error_code, error.message) from error

    return run


def result_of(ctx: JobContext, counts: dict[str, int], what: str) -> dict[str, Any]:
    """Return the result of a bulk job; if rows failed, the job's message says how many."""
    if counts["failure"]:
        rows = counts["success"] + counts["failure"]
        ctx.friendly = f"{counts['failure']} of {rows} rows could not be {what}"
    return dict(counts)


def add_message(ctx: JobContext, text: str) -> None:
    """Append a text to the job's message for people."""
    ctx.friendly = text if ctx.friendly is None else f"{ctx.friendly}; {text}"
