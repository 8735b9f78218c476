"""A batch as its submitter holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from relevo.jobs.batches.model import BatchResult, JobBatch
    from relevo.jobs.batches.service import Batches
    from relevo.jobs.handles import JobHandle
    from relevo.jobs.model import BatchedOptions
    from relevo.jobs.querying.query import JobQuery


class BatchHandle:
    """One batch, by its id; nothing is read until you ask for it.

    As a context manager it closes the batch at the end of the block, and cancels it if the block
    raises:

    >>> async with await app.jobs.batch(then="report") as batch:  # doctest: +SKIP
    ...     await batch.submit_many("resize", [{"image": n} for n in range(100)])
    """

    def __init__(self, batches: Batches, id: UUID) -> None:  # noqa: A002 - the word of the API
        self._batches = batches
        self.id = id

    def __repr__(self) -> str:
        """Return its id."""
        return f"BatchHandle({self.id})"

    async def submit(
        self, handler: str, data: Any = None, **options: Unpack[BatchedOptions]
    ) -> JobHandle[Any]:
        """Submit a job into the batch; raises `BatchClosed` if that takes no more.

        The options are those of `Jobs.submit`. A handler submits as `handler.using(batch=batch)`.
        """
        return await self._batches.jobs.submit(handler, data, batch=self.id, **options)

    async def submit_many(
        self, handler: str, data: Sequence[Any], **options: Unpack[BatchedOptions]
    ) -> list[JobHandle[Any]]:
        """Submit a job into the batch for each element of `data`, in one transaction."""
        return await self._batches.jobs.submit_many(handler, data, batch=self.id, **options)

    async def close(self, *, tx: Any = None) -> None:
        """Take no more jobs: the batch ends when those that it has end.

        It waits for submits into the batch that are under way. `tx` is a connection of the caller,
        in a transaction.
        """
        await self._batches.close(self.id, tx=tx)

    async def cancel(self) -> None:
        """Close the batch and cancel its jobs; running handlers are asked to stop.

        When this returns, all are canceled or asked. If the caller dies before, a host goes on.
        """
        await self._batches.cancel(self.id)

    async def get(self) -> JobBatch:
        """Return the batch with its counts as they are now."""
        return await self._batches.get(self.id)

    async def wait(self, timeout: float | None = None) -> JobBatch:
        """Return the batch once it has ended: it is closed, and all of its jobs have ended.

        It raises nothing for failed jobs; see the counts. `TimeoutError` if it does not end in
        time; with `timeout=0` there is one look.
        """
        return await self._batches.wait(self.id, timeout)

    def results(self) -> AsyncIterator[BatchResult]:
        """Yield how each job ended, as they end, until the batch has.

        Successes whose handler leaves no record (`auto_delete`) do not come. A job that fails, is
        retried and ends again comes once. It keeps the ids in memory: about 100 MB per million.
        """
        return self._batches.results(self.id)

    def jobs(self) -> JobQuery:
        """Return a query over the jobs of the batch."""
        return self._batches.jobs.query().where(batch=self.id)

    async def __aenter__(self) -> BatchHandle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self.cancel()
