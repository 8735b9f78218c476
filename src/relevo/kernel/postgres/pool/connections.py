"""A pool whose connections stay at hand between statements, and are divided among uses.

asyncpg's pool resets a returned connection over several turns of the event loop, which costs as
much as a small statement. A single statement of Relevo's leaves nothing to reset, so its connection
stays at hand for the next call until it has been idle for a second. The one used last is used next:
its server process has the plans in its cache. Turns are given before (`relevo.kernel.uses`), so a
caller waits for asyncpg's pool only while it opens or resets a connection.

**Sleepers.** `relevo.stay_awake` lets the server end a client that sleeps between two statements. A
client can also sleep within one: frozen or cut off after the server got Parse, or Bind, and waits
for the rest. The server takes such a session for active, and before PostgreSQL 17 none of its time
limits ends it. Every statement that is new to a connection has this gap, since the driver sends
Parse apart. A call that waits for long therefore looks for sleepers, and ends them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

from relevo import limits
from relevo.errors import Closed, ConnectionsBusy
from relevo.kernel.postgres import catalog, locks
from relevo.kernel.telemetry.logs import get_logger
from relevo.kernel.uses import Turns, count_taken, shares

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from relevo.kernel.postgres.pool.endpoint import Endpoint
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
        """Idle connections and their times; the one used last comes last."""
        self._tidying: asyncio.TimerHandle | None = None
        self._releases: set[asyncio.Future[None]] = set()

    async def take(self, use: Use) -> Pooled:
        """Return a connection for exclusive use; waits while its use has its full share."""
        count_taken()
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
        """Wait for a turn, and measure the wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.turns.join(use, turn)
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
        """Return a connection that must be reset; no caller waits for the reset."""
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
        """Return connections that were idle for long to the pool, which may close them."""
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


SQL = catalog.load("relevo.kernel.postgres")
log = get_logger(__name__)
ASLEEP_SECONDS: Final = 5.0
"""As `relevo.stay_awake`: a session that sleeps this long on Relevo's locks is ended."""
_FAILURES: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


class SleeperWatch:
    """A call, during which sleepers are looked for every few seconds."""

    __slots__ = ("_sleepers",)

    def __init__(self, sleepers: Sleepers) -> None:
        self._sleepers = sleepers

    def __enter__(self) -> None:
        self._sleepers.join(self)

    def __exit__(self, *_: object) -> None:
        self._sleepers.leave(self)


class Sleepers:
    """Looks for sleeping sessions of a database whenever a call of this process takes long."""

    def __init__(self, endpoint: Endpoint, after: float = ASLEEP_SECONDS) -> None:
        self._endpoint = endpoint
        self.after = after
        self._looking: asyncio.Task[None] | None = None
        self._calls: dict[SleeperWatch, float] = {}
        """Calls under way and when they began, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while calls are under way: one for all, for most calls end long before it."""

    def watch(self) -> SleeperWatch:
        """Return a block that looks every few seconds while it lasts."""
        return SleeperWatch(self)

    def join(self, call: SleeperWatch) -> None:
        """Note that a call begins."""
        loop = asyncio.get_running_loop()
        self._calls[call] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self.after, self._late)

    def leave(self, call: SleeperWatch) -> None:
        """Note that a call has ended."""
        del self._calls[call]

    def _late(self) -> None:
        self._timer = None
        if not self._calls:
            return
        loop, oldest = asyncio.get_running_loop(), next(iter(self._calls.values()))
        waited = loop.time() - oldest
        if waited >= self.after:
            self.look()
        left = self.after - waited
        self._timer = loop.call_later(left if left > 0 else self.after, self._late)

    def look(self) -> None:
        """Look now, unless a look is under way; no caller waits for it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
