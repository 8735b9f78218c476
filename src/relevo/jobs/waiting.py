"""Waiting for the end of jobs: one look for all that a process waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from relevo.jobs.running.rounds import ENDED
from relevo.postgres import catalog

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
POLL_SECONDS: Final = 0.25
log = structlog.get_logger(__name__)


class End(Struct, frozen=True):
    """How a job ended; without a status its record is gone."""

    status: int | None = None
    result: str | None = None
    error_code: int | None = None
    friendly: str | None = None
    message: str | None = None


class Waiting:
    """Looks after awaited jobs while there are any: at wake-ups, and a few times a second."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._database = database
        self._wakeups = wakeups
        self._awaited: dict[UUID, set[asyncio.Future[End]]] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def wait(self, id: UUID) -> End:  # noqa: A002 - the word of the API
        """Return how a job ended, once it has."""
        future: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(id, set()).add(future)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.ensure_future(self._watch())
        try:
            return await future
        finally:
            waiters = self._awaited.get(id, set())
            waiters.discard(future)
            if not waiters:
                self._awaited.pop(id, None)

    async def close(self) -> None:
        """Stop looking; who still waits is cancelled."""
        if self._watcher is not None:
            self._watcher.cancel()
        for future in [one for waiters in self._awaited.values() for one in waiters]:
            future.cancel()
        self._awaited.clear()

    async def _watch(self) -> None:
        with self._wakeups.signal(ENDED) as woken:
            while self._awaited:
                try:
                    rows = await self._database.fetch(SQL.ends, list(self._awaited))
                except Exception as error:  # whoever cannot wait has a deadline of its own
                    log.warning("jobs.wait_failed", error=str(error)[:500])
                    rows = []
                for row in rows:
                    end = End(*(row[name] for name in End.__struct_fields__))
                    for future in self._awaited.pop(row["id"], ()):
                        if not future.done():
                            future.set_result(end)
                if self._awaited:
                    await woken.wait(POLL_SECONDS)
