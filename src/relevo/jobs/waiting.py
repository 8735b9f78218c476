"""Waiting for the end of jobs: one look for all that a process waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

import structlog
from msgspec import Struct

from relevo.errors import Closed
from relevo.jobs.running.ledger import ENDED
from relevo.kernel import uses
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.jobs.model import Submission
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
POLL_SECONDS: Final = 0.25
log = structlog.get_logger(__name__)


class Known(Struct, frozen=True):
    """What is known of a job that is or was there: what it means if its record is not.

    `brief` says that success leaves no record; without it, `handler` names who decides that. `tx`
    has the numbers of the transaction and the savepoint that submit it, if somebody else commits.
    """

    brief: bool | None = None
    handler: str | None = None
    tx: str | None = None

    @classmethod
    def of(cls, job: Submission, tx: str | None) -> Known:
        """Return what a submit tells."""
        told = job.options or {}
        brief = False if told.get("retain") else told.get("auto_delete")
        return cls(brief, job.handler, tx)


class End(Struct, frozen=True):
    """How a job ended. Without a status there is no record: `gone` says why, and nothing if the
    job succeeded.

    `undone` is one whose transaction or savepoint was rolled back, `missing` one of which nothing
    is known.
    """

    status: int | None = None
    result: str | None = None
    error_code: int | None = None
    friendly: str | None = None
    message: str | None = None
    gone: Literal["deleted", "undone", "missing"] | None = None


class Awaited(Struct):
    """A job and who waits for its end."""

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
        """Stop looking; who still waits is told so."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        for id_, awaited in self._awaited.items():
            for future in awaited.waiters:
                if not future.done():
                    future.set_exception(_closed(id_))
                    future.exception()  # whoever gave up in this moment does not fetch it
        self._awaited.clear()

    async def _watch(self) -> None:
        uses.begin("host")
        with self._wakeups.signal(ENDED) as woken:
            while self._awaited:
                try:
                    await self._look(self._awaited)
                except Exception as error:  # whoever cannot wait has a deadline of its own
                    log.warning("jobs.wait_failed", error=str(error)[:500])
                if self._awaited:
                    await woken.wait(POLL_SECONDS)

    async def _look(self, wanted: dict[UUID, Awaited]) -> None:
        """Tell those whose jobs are over. A job that nobody knows is looked for among the others
        first: later, when its record is gone, it is known what that means.
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
                continue  # nobody waits any more, or somebody has come who knows it
            del wanted[row["id"]]
            end = End(*(row[name] for name in End.__struct_fields__))
            for future in ended.waiters:
                if not future.done():
                    future.set_result(end)
        self.looks += 1


def _closed(id: UUID) -> Closed:  # noqa: A002 - the word of the API
    return Closed(f"the app closes, and job {id} may go on; wait for it again when it is open")
