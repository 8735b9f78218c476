"""Wake-ups are hints; polling is the truth.

Code that commits something others may wait for then calls `wakeups.send("unit:7")`. Waiters
in this process hear it at once, other processes through a NOTIFY: a few at once, then what comes
within 10 ms as one. Losing one costs latency, never work, so every wait has a time limit.
Through PgBouncer, listening is impossible, and everything works by polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from typing import TYPE_CHECKING

import asyncpg

from relevo import limits
from relevo.errors import RelevoError
from relevo.kernel import uses
from relevo.kernel.backoff import Backoff
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.polling import Polling
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from relevo.kernel.postgres.database import Database
    from relevo.kernel.postgres.polling import Question

SQL = catalog.load(__package__)
EVERYBODY = "*"
"""A topic that wakes every waiter: time was moved, or something may have been missed."""
_LOST = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    RelevoError,
)
log = get_logger(__name__)


class Signal:
    """Waits for wake-ups of some topics; remembers one that came between two waits."""

    def __init__(
        self, wakeups: Wakeups, topics: Iterable[str], question: Question | None = None
    ) -> None:
        self._wakeups = wakeups
        self._topics = set(topics) or {""}
        self._question = question
        self._event = asyncio.Event()
        self._asking = contextlib.ExitStack()

    def listen(self, topic: str) -> None:
        """Wait for one more topic; until the signal is left."""
        self._topics.add(topic)
        self._wakeups.signals.setdefault(topic, set()).add(self)

    def set(self) -> None:
        """Wake the waiter, or let the next wait return at once."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Return True when woken, False after `timeout` seconds; either way, go and look."""
        woken = True
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            woken = self._event.is_set()
        self._event.clear()  # not when canceled: then the next wait returns at once
        return woken

    def patience(self, seconds: float) -> float:
        """Return how long to wait where looking every so many seconds would do.

        Longer while the host's poll asks the question of this signal, which sets it in time.
        """
        return seconds if self._question is None else self._wakeups.polling.patience(seconds)

    def __enter__(self) -> Signal:
        for topic in list(self._topics):
            self.listen(topic)
        if self._question is not None:
            polling = self._wakeups.polling
            self._asking.enter_context(polling.asking(self._question, self.set))
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        for topic in self._topics:
            waiting = self._wakeups.signals.get(topic, set())
            waiting.discard(self)
            if not waiting:
                self._wakeups.signals.pop(topic, None)


class Wakeups:
    """One listening connection and one coalescing sender per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._me = secrets.token_hex(4)
        self._pending: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._due = 0.0
        """When the next may be sent, by the loop's clock; long ago if there was little to send."""
        self._dropped = asyncio.Event()
        self.signals: dict[str, set[Signal]] = {}
        self.listening = False
        self.sent = 0
        self.polling = Polling(database, self)

    def signal(self, *topics: str, question: Question | None = None) -> Signal:
        """Return a signal to be used as `with wakeups.signal("unit:7") as woken: …`.

        The host's poll sets it, too, when the answer to its question is that something is to do.
        """
        return Signal(self, topics, question)

    def send(self, *topics: str) -> None:
        """Wake the waiters of these topics, in all processes; call it after the commit."""
        if not topics:
            return
        self._deliver(topics)
        self._pending.update(topics)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send_pending())

    async def close(self) -> None:
        """Send pending wake-ups; the owner of the listening loop ends it."""
        if self._sender is not None:
            await asyncio.gather(self._sender, return_exceptions=True)

    async def listen(self) -> None:
        """Listen until canceled; after a gap, wake every waiter, which may have missed one."""
        if self._database.endpoint.pooled:
            await asyncio.Event().wait()
        backoff, attempt = Backoff(first=0.1, longest=5.0), 0
        jitter = random.Random()  # noqa: S311 - jitter, not a secret
        while True:
            try:
                await self._listen_once()
                attempt = 0
            except _LOST as error:
                log.info("wakeups.reconnect", error=str(error) or type(error).__name__)
            await asyncio.sleep(backoff.delay(attempt, jitter))
            attempt += 1

    async def _listen_once(self) -> None:
        connection = await self._database.endpoint.connect()
        self._dropped.clear()
        connection.add_termination_listener(lambda _: self._dropped.set())
        try:
            await connection.add_listener(connection.schema, self._on_notify)
            self.listening = True
            self._deliver([EVERYBODY])
            while not self._dropped.is_set():
                try:
                    async with asyncio.timeout(15.0):
                        await self._dropped.wait()
                except TimeoutError:
                    await connection.fetchval(SQL.ping, timeout=5.0)  # half-open connections show
        finally:
            self.listening = False
            connection.terminate()

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *topics = str(payload).split("\n")
        if sender != self._me:
            self._deliver(topics)

    def _deliver(self, topics: Collection[str]) -> None:
        for topic in self.signals if EVERYBODY in topics else topics:
            for signal in self.signals.get(topic, ()):
                signal.set()

    async def _send_pending(self) -> None:
        uses.begin("host")
        clock = asyncio.get_running_loop().time
        while self._pending:
            saved = limits.WAKEUP_BURST * limits.WAKEUP_INTERVAL_SECONDS
            self._due = max(self._due, clock() - saved) + limits.WAKEUP_INTERVAL_SECONDS
            await asyncio.sleep(self._due - clock())
            payload = self._next_payload()
            try:
                await self._database.fetch(SQL.notify, payload)
                self.sent += 1
            except (RelevoError, asyncpg.PostgresError) as error:
                log.debug("wakeups.not_sent", error=str(error))
                return

    def _next_payload(self) -> str:
        lines, size = [self._me], 0
        while self._pending and size < limits.WAKEUP_BYTES_MAX:
            topic = self._pending.pop()
            lines.append(topic)
            size += len(topic.encode()) + 1
        return "\n".join(lines)
