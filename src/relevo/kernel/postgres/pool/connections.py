"""A pool whose connections stay at hand between statements, and are divided among uses.

asyncpg's pool resets a connection that is given back, over several turns of the event loop, and
that costs as much as a small statement. A single statement of ours leaves nothing to reset: its
connection stays at hand for the next call, until nobody has used it for a second. The one used last
is used next: its server process knows the plans of what it is asked.

Who may take one is decided before (`turns.py`), so asyncpg's pool is never waited for, but
for a connection that is being made or reset.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from relevo import limits
from relevo.errors import Closed, ConnectionsBusy
from relevo.kernel.postgres.pool.shares import shares
from relevo.kernel.postgres.pool.turns import Turns

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from relevo.kernel.telemetry.metrics import Metrics
    from relevo.kernel.uses import Use

    Pooled: TypeAlias = PoolConnectionProxy[asyncpg.Record]

AT_HAND_SECONDS: Final = 1.0
RESET_SECONDS_MAX: Final = 5.0


class Connections:
    """Hands out the connections of a pool; used from one event loop."""

    def __init__(self, pool: asyncpg.Pool, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self.turns = Turns(shares(pool.get_max_size()))
        self._at_hand: list[tuple[float, Pooled]] = []
        """Since when, and what; the one used last comes last."""
        self._tidying: asyncio.TimerHandle | None = None
        self._releases: set[asyncio.Future[None]] = set()

    async def take(self, use: Use) -> Pooled:
        """Return a connection for one user alone; waits while its use has all it may have."""
        if not self.turns.enter(use):
            await self._turn(use)
        try:
            while self._at_hand:
                _, connection = self._at_hand.pop()
                if not _is_closed(connection):
                    return connection
                self._release(connection)
            async with asyncio.timeout(limits.CONNECT_SECONDS_MAX):
                return await self._pool.acquire()
        except BaseException:
            self.turns.leave(use)
            raise

    async def _turn(self, use: Use) -> None:
        """Wait for a turn, and tell how long that took."""
        turn = self.turns.join(use)
        began, seconds = time.monotonic(), wait_seconds(use)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            self.turns.forget(use, turn)
            raise ConnectionsBusy(self._told(use, seconds)) from None
        except BaseException:
            self.turns.forget(use, turn)
            raise
        finally:
            waited = time.monotonic() - began
            self._metrics.pool_wait_seconds.labels(use=use.kind).observe(waited)

    def _told(self, use: Use, seconds: float) -> str:
        size, most = self.turns.shares.size, self.turns.shares.most[use.kind]
        who = f"waited {seconds:g} s for one of the"
        match use.kind:
            case "inside" | "nested":
                return (
                    f"{who} {size} connections of the pool, within a transaction that holds one"
                    f" itself; raise pool_size ({size}), or use the transaction for the call"
                )
            case _ if use.key:
                share = self.turns.shares.key_most[use.kind]
                return (
                    f"{who} {share} connections that {_WORDS[use.kind]} of one key may use at a"
                    f" time; raise pool_size ({size})"
                )
            case _:
                return (
                    f"{who} {most} connections that {_WORDS[use.kind]} may use at a time; raise"
                    f" pool_size ({size}), or keep transactions shorter"
                )

    def keep(self, connection: Pooled, use: Use) -> None:
        """Give back a connection after a statement that went well."""
        if self._pool.is_closing():
            self.release(connection, use)
            return
        loop = asyncio.get_running_loop()
        self._at_hand.append((loop.time(), connection))
        if self._tidying is None:
            self._tidying = loop.call_later(AT_HAND_SECONDS, self._tidy)
        self.turns.leave(use)

    def release(self, connection: Pooled, use: Use) -> None:
        """Give back a connection that has to be reset; nobody waits for that, or fails with it."""
        # Not now: first the caller gets its answer.
        asyncio.get_running_loop().call_later(0, self._release, connection)
        self.turns.leave(use)

    async def close(self, timeout: float) -> None:
        """Close all; those that are taken may be given back until then, and are cut off after."""
        closing = asyncio.ensure_future(self._pool.close())  # from here on, nothing is kept
        await asyncio.sleep(0)
        self.turns.fail(Closed("the database was closed while the call waited"))
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


_WORDS: Final = {
    "host": "Relevo's own loops",
    "groups": "grouped calls",
    "handlers": "handlers",
    "requests": "requests",
    "queries": "queries of users",
    "program": "the program",
}


def wait_seconds(use: Use) -> float:
    """How long a call may wait for its turn; handlers queue as long as their work takes."""
    if use.kind == "handlers":
        return limits.POOL_WAIT_HANDLERS_SECONDS_MAX
    return limits.POOL_WAIT_SECONDS_MAX


def _is_closed(connection: Pooled) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # lost while at hand, and so the pool's again
        return True
