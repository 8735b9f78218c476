"""A pool whose connections stay at hand between statements.

asyncpg's pool resets a connection that is given back, over several turns of the event loop, and
that costs as much as a small statement. A single statement of ours leaves nothing to reset: its
connection stays at hand for the next call, until nobody has used it for a second or somebody has to
wait. The one used last is used next: its server process knows the plans of what it is asked.
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
        self._at_hand: list[tuple[float, Pooled]] = []
        """Since when, and what; the one used last comes last."""
        self._asking = 0
        self._tidying: asyncio.TimerHandle | None = None
        self._releases: set[asyncio.Future[None]] = set()

    async def take(self) -> Pooled:
        """Return a connection for one user alone; waits while all are taken."""
        while self._at_hand:
            _, connection = self._at_hand.pop()
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
        loop = asyncio.get_running_loop()
        self._at_hand.append((loop.time(), connection))
        if self._tidying is None:
            self._tidying = loop.call_later(AT_HAND_SECONDS, self._tidy)

    def release(self, connection: Pooled) -> None:
        """Give back a connection that has to be reset; nobody waits for that, or fails with it."""
        # Not now: first the caller gets its answer.
        asyncio.get_running_loop().call_later(0, self._release, connection)

    async def close(self, timeout: float) -> None:
        """Close all; those that are taken may be given back until then, and are cut off after."""
        closing = asyncio.ensure_future(self._pool.close())  # from here on, nothing is kept
        await asyncio.sleep(0)
        self._tidy(everything=True)
        try:
            async with asyncio.timeout(timeout):
                await closing
        except TimeoutError:
            self._pool.terminate()

    def _tidy(self, *, everything: bool = False) -> None:
        """Leave to the pool what nobody has used for long; it closes what nobody needs."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        loop = asyncio.get_running_loop()
        used = loop.time() - AT_HAND_SECONDS
        idle = [one for since, one in self._at_hand if everything or since <= used]
        del self._at_hand[: len(idle)]
        for connection in idle:
            self._release(connection)
        if self._at_hand:
            self._tidying = loop.call_later(AT_HAND_SECONDS, self._tidy)

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
