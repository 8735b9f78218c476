"""One job as who submitted or found it holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from relevo.jobs import states
from relevo.jobs.errors import JobFailed, JobMissing

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from relevo.jobs.model import Job
    from relevo.jobs.service import Jobs
    from relevo.jobs.waiting import Known

R = TypeVar("R")


class JobHandle(Generic[R]):
    """One job, by its key; nothing is read until it is asked for."""

    def __init__(self, jobs: Jobs, id: UUID, known: Known | None = None) -> None:  # noqa: A002
        self._jobs = jobs
        self._known = known
        self.id = id

    def __repr__(self) -> str:
        """Return its key."""
        return f"JobHandle({self.id})"

    async def get(self) -> Job:
        """Return the record as it is now."""
        return await self._jobs.get(self.id)

    async def cancel(self, *, series: bool = False) -> None:
        """Cancel; a running handler is asked to stop. `series=True` also ends the series."""
        await self._jobs.command(self.id, "cancel", series=series)

    async def pause(self) -> None:
        """Ask a running handler to yield at its next checkpoint."""
        await self._jobs.command(self.id, "pause")

    async def resume(self) -> None:
        """Let a suspended job go on."""
        await self._jobs.command(self.id, "resume")

    async def postpone(self, until: datetime) -> None:
        """Let the job wait until an instant."""
        await self._jobs.command(self.id, "postpone", until=until)

    async def delete(self) -> None:
        """Remove the record; a running handler is asked to stop."""
        await self._jobs.command(self.id, "delete")

    async def wait(self, timeout: float | None = None) -> R:
        """Return what the handler returned, once the job has succeeded.

        Raises `JobFailed` if it ends otherwise or is deleted, `JobMissing` if there is none,
        `TimeoutError` if it does not end in time; with `timeout=0` there is one look.

        A job of which success leaves no record (`auto_delete`) counts as succeeded, without a
        result, when its record is gone and it is known to have been there: the handle is that of
        its submit, or the wait has seen it. Submit with `retain=True` to keep the record. One that
        is submitted with `tx` is waited for from before the commit on, and is missing if that or
        its savepoint is rolled back.
        """
        end = await self._jobs.end_of(self.id, timeout, self._known)
        if end.gone == "deleted":
            raise JobFailed(f"job {self.id} was deleted")
        if end.gone == "undone":
            raise JobMissing(
                f"there is no job {self.id}: its transaction or savepoint was rolled back"
            )
        if end.gone == "missing":
            raise JobMissing(
                f"there is no job {self.id}, or not any more; wait with the handle of its submit,"
                " or submit it with retain=True"
            )
        if end.status is None or end.status == states.SUCCEEDED:
            result: Any = None if end.result is None else msgspec.json.decode(end.result)
            return cast("R", result)
        told = end.friendly or (end.message or "").strip()[-500:]
        raise JobFailed(
            f"job {self.id} ended as {states.LABELS[end.status]!r}" + (f": {told}" if told else ""),
            error_code=end.error_code,
        )
