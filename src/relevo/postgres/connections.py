"""A pool whose connections stay at hand between statements.

asyncpg's pool resets a connection that is given back, over several turns of the event loop, and
that costs as much as a small statement. A single statement of ours leaves nothing to reset: its
connection stays at hand for the next call, for a second at most or until somebody has to wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Pooled: TypeAlias = PoolConnectionProxy[asyncpg.Record]

AT_HAND_SECONDS: Final = 1.0
RESET_SECONDS_MAX: Final = 5.0


class Connections:
    """Hands out the connections of a pool; used from one event loop."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._at_hand: list[Pooled] = []
        self._asking = 0
        self._tidying: asyncio.TimerHandle | None = None
        self._releases: set[asyncio.Future[None]] = set()

    async def take(self) -> Pooled:
        """Return a connection for one user alone; waits while all are taken."""
        while self._at_hand:
            connection = self._at_hand.pop()
            if not _is_closed(connection):
                return connection
            self._release(connection)
        self._asking += 1
        try:
            return await self._pool.acquire()
        finally:
            self._asking -= 1

    def keep(self, connection: Pooled) -> None:
        """Give back a connection after a statement that went well."""
        if self._asking or self._pool.is_closing():
            self.release(connection)
            return
        self._at_hand.append(connection)
        if self._tidying is None:
            loop = asyncio.get_running_loop()
            self._tidying = loop.call_later(AT_HAND_SECONDS, self._tidy)

    def release(self, connection: Pooled) -> None:
        """Give back a connection that has to be reset; nobody waits for that, or fails with it."""
        # Not now: first the caller gets its answer.
        asyncio.get_running_loop().call_later(0, self._release, connection)

    async def close(self, timeout: float) -> None:
        """Close all; those that are taken may be given back until then, and are cut off after."""
        closing = asyncio.ensure_future(self._pool.close())  # from here on, nothing is kept
        await asyncio.sleep(0)
        self._tidy()
        try:
            async with asyncio.timeout(timeout):
                await closing
        except TimeoutError:
            self._pool.terminate()

    def _tidy(self) -> None:
        """Leave what is at hand to the pool, which closes connections that nobody needs."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        while self._at_hand:
            self._release(self._at_hand.pop())

    def _release(self, connection: Pooled) -> None:
        release = asyncio.ensure_future(self._pool.release(connection, timeout=RESET_SECONDS_MAX))
        self._releases.add(release)
        release.add_done_callback(self._released)

    def _released(self, release: asyncio.Future[None]) -> None:
        self._releases.discard(release)
        if not release.cancelled():
            release.exception()  # seen: the pool closes a connection that it cannot reset


def _is_closed(connection: Pooled) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # lost while at hand, and so the pool's again
        return True
