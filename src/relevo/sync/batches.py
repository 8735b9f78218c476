"""A batch of jobs, for callers that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from relevo.jobs import BatchHandle
from relevo.sync.facade import Blocking, Facade
from relevo.sync.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from relevo.jobs import BatchResult
    from relevo.jobs.model import BatchedOptions


class Batch(Facade):
    """One batch, by its id: `relevo.jobs.BatchHandle` without `await`.

    As a context manager it closes the batch at the end of the block, and cancels it if that raises.
    """

    _behind: BatchHandle

    @property
    def id(self) -> UUID:
        """Its id."""
        return self._behind.id

    @property
    def handle(self) -> BatchHandle:
        """The async handle, for `receipt.using(batch=batch.handle)`."""
        return self._behind

    def submit(self, handler: str, data: Any = None, **options: Unpack[BatchedOptions]) -> Job[Any]:
        """Submit a job into the batch."""
        needs_app = options.get("tx") is None
        submitting = self._behind.submit(handler, data, **options)
        return Job(self._thread, self._thread.run(submitting, connected=needs_app))

    def submit_many(
        self, handler: str, data: Sequence[Any], **options: Unpack[BatchedOptions]
    ) -> list[Job[Any]]:
        """Submit a job into the batch for each element of `data`, in one transaction."""
        needs_app = options.get("tx") is None
        submitting = self._behind.submit_many(handler, data, **options)
        handles = self._thread.run(submitting, connected=needs_app)
        return [Job(self._thread, handle) for handle in handles]

    def close(self, *, tx: Any = None) -> None:
        """Take no more jobs: the batch ends when those that it has end."""
        self._thread.run(self._behind.close(tx=tx), connected=tx is None)

    def results(self) -> Iterator[BatchResult]:
        """Yield how each job ended, as they end, until the batch has."""
        results = self._behind.results()
        while True:
            try:
                yield self._thread.run(anext(results))
            except StopAsyncIteration:
                return

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.cancel()

    cancel = Blocking(BatchHandle.cancel)
    get = Blocking(BatchHandle.get)
    wait = Blocking(BatchHandle.wait)
