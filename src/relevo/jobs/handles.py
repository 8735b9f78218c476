"""A job as its submitter holds it, and waiting for the end of jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct

from relevo.errors import Closed
from relevo.jobs import states
from relevo.jobs.errors import JobFailed, JobMissing
from relevo.jobs.running.ledger import ENDED
from relevo.kernel import error_text, uses
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from relevo.jobs.core.reasons import JobExplanation
    from relevo.jobs.model import Job, Submission, SubmitOptions
    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database, Wakeups

R = TypeVar("R")
SQL = catalog.load("relevo.jobs")
POLL_SECONDS: Final = 0.25
log = get_logger(__name__)


class JobHandle(Generic[R]):
    """One job, by its key; nothing is read until you ask for it."""

    def __init__(self, jobs: Jobs, id: UUID, known: Known | None = None) -> None:  # noqa: A002
        self._jobs = jobs
        self._known = known
        self.id = id
        self.existed = False
        """Whether the submit was of a unique job, and this is the first one of its key."""
        self.warning: str | None = None
        """What the submit found suspicious: that no host has ever registered the handler."""

    def __repr__(self) -> str:
        """Return its key."""
        return f"JobHandle({self.id})"

    async def get(self) -> Job:
        """Return the record as it is now."""
        return await self._jobs.get(self.id)

    async def explain(self) -> JobExplanation:
        """Return why the job has not run, or where it runs; `says` is the reason in a sentence."""
        return await self._jobs.explain(self.id)

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

    async def retry(self) -> None:
        """Run a failed or canceled job again, with its data, saved state and count of attempts."""
        await self._jobs.command(self.id, "rerun")

    async def run_again(self, data: Any = None, **changes: Unpack[SubmitOptions]) -> JobHandle[R]:
        """Submit a new job like this one, with its data or other; see `Jobs.run_again`."""
        return await self._jobs.run_again(self.id, data, **changes)

    async def delete(self) -> None:
        """Remove the record; a running handler is asked to stop."""
        await self._jobs.command(self.id, "delete")

    async def wait(self, timeout: float | None = None) -> R:
        """Return the handler's result, once the job has succeeded.

        Raises `JobFailed` if it ends otherwise or is deleted, `JobMissing` if there is none,
        `TimeoutError` if it does not end in time; with `timeout=0` there is one look.

        If success leaves no record (`auto_delete`), a job counts as succeeded, without a result,
        when its record is gone and it is known to have existed: the handle is that of its submit,
        or the wait has seen it. Submit with `retain=True` to keep the record. A job submitted with
        `tx` can be waited for before the commit, and is missing after a rollback.
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
                f"there is no job {self.id} (any more); wait with the handle of its submit,"
                " or submit it with retain=True"
            )
        if end.status is None or end.status == states.SUCCEEDED:
            result: Any = None if end.result is None else msgspec.json.decode(end.result)
            return cast("R", result)
        trace = (end.message or "").strip()
        reason = end.friendly or error_text.headline(trace)
        raise JobFailed(
            f"job {self.id} ended as {states.LABELS[end.status]!r}"
            + (f": {reason}" if reason else ""),
            error_code=end.error_code,
            traceback=trace or None,
        )


class Known(Struct, frozen=True):
    """Facts about a job that exists or existed: they explain a missing record.

    `brief`: success leaves no record; if that is None, the options of `handler` decide. `tx` has
    the numbers of the transaction and savepoint of the submit, if the caller commits it.
    """

    brief: bool | None = None
    handler: str | None = None
    tx: str | None = None

    @classmethod
    def of(cls, job: Submission, tx: str | None) -> Known:
        """Return the facts that a submit knows."""
        options = job.options or {}
        brief = False if options.get("retain") else options.get("auto_delete")
        return cls(brief, job.handler, tx)


class End(Struct, frozen=True):
    """How a job ended. Without a status there is no record; then `gone` is the reason, or None if
    the job succeeded.

    `undone`: the transaction or savepoint was rolled back. `missing`: nothing is known of the job.
    """

    status: int | None = None
    result: str | None = None
    error_code: int | None = None
    friendly: str | None = None
    message: str | None = None
    gone: Literal["deleted", "undone", "missing"] | None = None


class Awaited(Struct):
    """A job and the callers that wait for its end."""

    known: Known | None
    waiters: set[asyncio.Future[End]]


class Waiting:
    """Looks after awaited jobs while there are any: at wake-ups, and a few times a second."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._awaited: dict[UUID, Awaited] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self.looks = 0

    async def wait(
        self,
        id: UUID,  # noqa: A002 - the word of the API
        known: Known | None = None,
        timeout: float | None = None,
    ) -> End:
        """Return how a job ended, once it has; `TimeoutError` if it has not in time.

        Without any time there is one look.
        """
        if self._closed:
            raise _closed(id)
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        if timeout is not None and timeout <= 0:
            await self._look({id: Awaited(known, {future})})
            if future.done():
                return future.result()
            raise TimeoutError
        awaited = self._awaited.setdefault(id, Awaited(known, set()))
        awaited.known = awaited.known or known
        awaited.waiters.add(future)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.ensure_future(self._watch())
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            awaited.waiters.discard(future)
            if not awaited.waiters and self._awaited.get(id) is awaited:
                del self._awaited[id]

    async def close(self) -> None:
        """Stop looking; callers that still wait get `Closed`."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        for id_, awaited in self._awaited.items():
            for future in awaited.waiters:
                if not future.done():
                    future.set_exception(_closed(id_))
                    future.exception()  # retrieved, even if its caller has just given up
        self._awaited.clear()

    async def _watch(self) -> None:
        uses.begin("host")
        with self._wakeups.signal(ENDED) as woken:
            while self._awaited:
                try:
                    await self._look(self._awaited)
                except Exception as error:  # callers have their own deadlines
                    log.warning("jobs.wait_failed", error=str(error)[:500])
                if self._awaited:
                    await woken.wait(POLL_SECONDS)

    async def _look(self, wanted: dict[UUID, Awaited]) -> None:
        """Wake the callers whose jobs have ended. An unknown job is looked up first, so that a
        missing record can be explained later.
        """
        if new := [id_ for id_, one in wanted.items() if one.known is None]:
            for row in await self._database.fetch(SQL.awaited, new):
                if (one := wanted.get(row["id"])) is not None:
                    one.known = one.known or Known(row["brief"])
        asked = {id_: one.known or Known() for id_, one in wanted.items()}
        rows = await self._database.fetch(
            SQL.ends, list(asked), [one.brief for one in asked.values()],
            [one.handler for one in asked.values()], [one.tx for one in asked.values()],
        )  # fmt: skip
        for row in rows:
            ended = wanted.get(row["id"])
            if ended is None or (row["gone"] == "missing" and ended.known is not None):
                continue  # no caller waits, or a new one knows the job
            del wanted[row["id"]]
            end = End(*(row[name] for name in End.__struct_fields__))
            for future in ended.waiters:
                if not future.done():
                    future.set_result(end)
        self.looks += 1


def _closed(id: UUID) -> Closed:  # noqa: A002 - the word of the API
    return Closed(
        f"the app was closed while job {id} may still run; wait for it again after connecting"
    )
