"""Ends sessions that fell asleep in the middle of a statement while others wait for their locks.

`relevo.stay_awake` lets the server end a client that sleeps between two statements. A client can
also sleep within one: frozen or cut off when the server has got Parse, or Bind, and waits for the
rest. To the server such a session is active, and before PostgreSQL 17 no time limit of its own ends
it. Every statement that is new to a connection has this gap, since the driver sends Parse apart. So
whoever has to wait for long looks for sleepers, and ends them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import asyncpg
import structlog

from relevo.kernel.postgres import catalog, locks

if TYPE_CHECKING:
    from relevo.kernel.postgres.pool.endpoint import Endpoint

SQL = catalog.load("relevo.kernel.postgres")
log = structlog.get_logger(__name__)
ASLEEP_SECONDS: Final = 5.0
"""As `relevo.stay_awake`: who holds a lock of ours and is silent for so long is ended."""
_FAILURES: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class Watch:
    """A block in which sleepers are looked for every few seconds."""

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._sleepers.after, self._late)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _late(self) -> None:
        self.__enter__()
        self._sleepers.look()


class Sleepers:
    """Looks for sleeping sessions of a database whenever a call of this process takes long."""

    def __init__(self, endpoint: Endpoint, after: float = ASLEEP_SECONDS) -> None:
        self._endpoint = endpoint
        self.after = after
        self._looking: asyncio.Task[None] | None = None

    def watch(self) -> Watch:
        """Return a block that looks every few seconds while it lasts; a quick one costs a timer."""
        return Watch(self)

    def look(self) -> None:
        """Look now, unless that is under way; nobody waits for it or fails with it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(self.after):
                await self.end()
        except _FAILURES as error:
            log.debug("sleepers.not_asked", error=str(error) or type(error).__name__)

    async def end(self) -> list[int]:
        """End the sessions that sleep on locks; return their process ids.

        On a connection of its own, for those of the pool may all be waiting.
        """
        classes = [locks.of(one, self._endpoint.schema) for one in (locks.MIGRATE + 1, locks.LAST)]
        connection = await self._endpoint.connect(timeout=self.after)
        try:
            async with connection.transaction():  # through a pooler, it keeps the messages together
                rows = await connection.fetch(
                    SQL.end_sleepers, self.after, *classes, self._endpoint.program
                )
        finally:
            connection.terminate()
        for row in rows:
            log.warning("session.ended_asleep", pid=row["pid"], query=row["query"][:200])
        return [row["pid"] for row in rows]
