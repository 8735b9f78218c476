"""A job, for callers that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from relevo.jobs import JobHandle
from relevo.sync.facade import Blocking, Facade

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.jobs.model import SubmitOptions
    from relevo.sync.loop_thread import LoopThread

R = TypeVar("R")


class Job(Facade, Generic[R]):
    """One job, by its key: `relevo.JobHandle` without `await`."""

    _behind: JobHandle[R]

    def __init__(self, thread: LoopThread, handle: JobHandle[R]) -> None:
        super().__init__(thread, handle)

    @property
    def id(self) -> UUID:
        """Its key."""
        return self._behind.id

    def wait(self, timeout: float | None = None) -> R:
        """Return the handler's result once the job has succeeded; see `relevo.JobHandle.wait`."""
        return self._thread.run(self._behind.wait(timeout))

    def run_again(self, data: Any = None, **changes: Unpack[SubmitOptions]) -> Job[R]:
        """Submit a new job like this one, with its data or other."""
        return Job(self._thread, self._thread.run(self._behind.run_again(data, **changes)))

    get = Blocking(JobHandle.get)
    cancel = Blocking(JobHandle.cancel)
    pause = Blocking(JobHandle.pause)
    resume = Blocking(JobHandle.resume)
    postpone = Blocking(JobHandle.postpone)
    retry = Blocking(JobHandle.retry)
    delete = Blocking(JobHandle.delete)
