"""A host's heartbeat: its own thread, its own connection, one statement per renewal.

The thread exists so that a handler that blocks the event loop does not cost the host its leases;
it stops renewing when the loop has not ticked for `loop_stall_max`, so that a hung host does.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from relevo.kernel import faults
from relevo.kernel.leases.holdings import Owned
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    import asyncpg

    from relevo.kernel.leases.model import LeaseConfig
    from relevo.kernel.postgres.pool.endpoint import Endpoint

SQL = catalog.load(__package__)
log = get_logger(__name__)
EndReason = Literal["stopped", "lapsed", "superseded"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def instant() -> float:
    """Seconds on a clock that includes suspended time, where the system has one."""
    return time.clock_gettime(_CLOCK)


class _Forks:
    """Counts how often this process was forked off: cheaper to ask than its number."""

    count = 0

    @classmethod
    def add(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=_Forks.add)


class Deadline:
    """Until when this host may act: instant before the last renewal was sent + ttl - margin."""

    def __init__(self) -> None:
        self._until = float("-inf")
        self._ended = False
        self._forks = _Forks.count

    def renew(self, until: float) -> None:
        """Move the deadline; called by the heartbeat."""
        if not self._ended:
            self._until = until

    def end(self) -> None:
        """The life is over: the host must not act in its name any more."""
        self._ended = True
        self._until = float("-inf")

    @property
    def left(self) -> float:
        """Seconds until the deadline; negative once it has passed, also in a forked child."""
        return self._until - instant() if self._forks == _Forks.count else float("-inf")

    @property
    def passed(self) -> bool:
        """Whether nothing may start and no result may leave until a renewal succeeds."""
        return time.clock_gettime(_CLOCK) >= self._until or self._forks != _Forks.count


class Beat:
    """The result of a renewal: all leases of the host, and the server's clock."""

    def __init__(
        self,
        owned: tuple[Owned, ...],
        then: Mapping[int, int],
        *,
        draining: bool,
        skew: float,
        delay: float,
    ) -> None:
        self.owned = owned
        self.then = then
        self.draining = draining
        self.skew = skew
        self.delay = delay
        """Seconds by which the renewal was later than planned, its own time included."""


class Heart:
    """Renews one incarnation until it is stopped or has ended.

    `on_beat` and `on_end` are called on the event loop that made the heart. `believed` is called in
    the thread, just before each question, and must return an unchanging mapping.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        incarnation: UUID,
        name: str,
        config: LeaseConfig,
        deadline: Deadline,
        *,
        believed: Callable[[], Mapping[int, int]],
        on_beat: Callable[[Beat], None],
        on_end: Callable[[EndReason], None],
    ) -> None:
        self._endpoint = endpoint
        self._incarnation = incarnation
        self._name = name
        self._config = config
        self._deadline = deadline
        self._believed = believed
        self._on_beat = on_beat
        self._on_end = on_end
        self._owner = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._wake: Callable[[], object] = lambda: None
        self._connection: asyncpg.Connection | None = None
        self.loop_ticked_at = instant()
        self.beats = 0
        self._renewed_at = instant()
        self._thread = threading.Thread(target=self._main, name="relevo heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; the host row is not touched."""
        self._stopping.set()
        self._wake()
        await asyncio.to_thread(self._thread.join, 10.0)

    def _main(self) -> None:
        try:
            asyncio.run(self._beat_until_stopped())
        except BaseException:
            log.exception("heartbeat.died", host=self._name)
            self._deadline.end()
            self._tell(self._on_end, "lapsed")
            raise

    async def _beat_until_stopped(self) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        pause = 0.0 if self._stopping.is_set() else self._config.renew
        try:
            while not self._stopping.is_set():
                try:
                    async with asyncio.timeout(pause):
                        await woken.wait()
                except TimeoutError:
                    pass
                if self._stopping.is_set():
                    return
                pause = await self._beat()
        finally:
            self._wake = lambda: None
            await self._drop_connection()

    async def _beat(self) -> float:
        """Renew once; return how long to wait before the next."""
        stalled = instant() - self.loop_ticked_at
        if stalled > self._config.loop_stall_max:
            log.error("heartbeat.withheld", reason="event loop stalled", seconds=round(stalled, 1))
            return self._config.renew
        try:
            async with asyncio.timeout(self._config.renew):
                ended = await self._renew()
        except Exception as error:
            log.warning(
                "heartbeat.failed",
                error=str(error) or type(error).__name__,
                seconds_left=round(self._deadline.left, 1),
            )
            await self._drop_connection()
            return min(0.5, self._config.renew / 4)
        if ended is not None:
            self._deadline.end()
            self._stopping.set()
            self._tell(self._on_end, ended)
        return self._config.renew

    async def _renew(self) -> EndReason | None:
        if self._connection is None:
            self._connection = await self._endpoint.connect(timeout=self._config.renew)
        connection = self._connection
        then = self._believed()
        faults.hit("before_heartbeat")
        sent, sent_wall = instant(), time.time()
        rows = await self._fetch(
            connection, SQL.heartbeat, self._incarnation, self._config.expiration
        )
        took_wall = time.time() - sent_wall
        if not rows:
            found = await self._fetch(connection, SQL.end_reason, self._incarnation, self._name)
            reason: EndReason = found[0][0]
            return reason
        self._deadline.renew(sent + self._config.expiration - self._config.margin)
        self.beats += 1
        skew = rows[0]["server_clock"] - (sent_wall + took_wall / 2)
        delay = max(0.0, instant() - self._renewed_at - self._config.renew)
        self._renewed_at = instant()
        beat = Beat(owned_rows(rows), then, draining=rows[0]["draining"], skew=skew, delay=delay)
        self._tell(self._on_beat, beat)
        return None

    async def _fetch(
        self, connection: asyncpg.Connection, sql: str, *args: Any
    ) -> list[asyncpg.Record]:
        if not self._endpoint.pooled:
            return await connection.fetch(sql, *args)
        async with connection.transaction():
            await connection.execute(SQL.stay_awake)
            return await connection.fetch(sql, *args)

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _tell(self, callback: Callable[[Any], None], value: object) -> None:
        try:
            self._owner.call_soon_threadsafe(callback, value)
        except RuntimeError:
            self._stopping.set()  # the owner's loop is closed: the process is ending


def owned_rows(rows: Sequence[asyncpg.Record]) -> tuple[Owned, ...]:
    """Read the leases out of the rows of `heartbeat` or `holdings`."""
    return tuple(
        Owned(row["id"], row["epoch"], row["state"], row["handoff"], row["handoff_left"])
        for row in rows
        if row["id"] is not None
    )
