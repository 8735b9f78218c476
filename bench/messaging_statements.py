"""The statements of messaging called by hand on one connection: the upper bound of what is built
on them, and what they cost the server.

The same functions with the same arrays and batches as Relevo's own processes send, without these.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import asyncpg
from msgspec import Struct

from relevo import App, settings
from relevo.messaging.core.acceptance import Acceptance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

BATCH: Final = 500
BODY: Final = b"x" * 200
HOST: Final = """
insert into relevo.host (incarnation, name, lease_until, started_at, version)
values ($1, $1::uuid::text, now() + interval '1 hour', now(), '0')
"""
CONSUMERS: Final = """
insert into relevo.message_consumers (name, definition, sources)
values ($1, '{"preempt": null}', array[$2::integer]) returning id
"""
ACCEPT: Final = f"select * from relevo.accept_messages({', '.join(f'${n}' for n in range(1, 24))})"
SERVE: Final = "select * from relevo.serve_messages($1, $2, $3, $4, $5, $6, $7, $8)"
COMPLETE: Final = (
    "select * from relevo.serve_messages($1, $2, '{}', '{}', '{}', '{}', '{}', '{}', $3, $4)"
)
ACTIVITY: Final = """
select w.wal_fpi, w.wal_bytes, i.reads, i.hits from pg_stat_get_backend_wal(pg_backend_pid()) w, (
  select coalesce(sum(reads), 0) as reads, coalesce(sum(hits), 0) as hits
  from pg_stat_get_backend_io(pg_backend_pid()) where object = 'relation') i
"""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(Struct, frozen=True):
    """What a step took for each message."""

    per_second: float
    cpu: float
    """Microseconds of the server's processor."""


class Activity(Struct, frozen=True):
    """What a connection has made PostgreSQL read and write."""

    images: int = 0
    """Pages that went to the log as a whole, because they were changed first since a checkpoint."""
    wal_bytes: int = 0
    reads: int = 0
    """Blocks that were not among the buffers."""
    hits: int = 0


class Line:
    """A queue and a connection that works on it as a host does."""

    def __init__(self, url: str, connection: asyncpg.Connection, id_: int, version: int) -> None:
        self._url = url
        self.connection = connection
        self.id = id_
        self.version = version
        self.numbers: Mapping[str, int] = {}
        self._host = uuid4()
        self._consumers = 0
        self._claims = 0

    async def prepare(self) -> None:
        """Have a host and consumers, and know the classes."""
        await self.connection.execute(HOST, self._host)
        self._consumers = await self.connection.fetchval(CONSUMERS, self._host.hex, self.id)
        rows = await self.connection.fetch(
            "select name, number from relevo.message_class where entity_id = $1", self.id
        )
        self.numbers = {row["name"]: row["number"] for row in rows}

    async def accept(self, count: int, classes: Sequence[tuple[str, int]], keys: int = 0) -> None:
        """Send messages, whose classes take turns, and whose tenants do if there are any."""
        for at in range(0, count, BATCH):
            many = range(at, min(at + BATCH, count))
            await self.connection.fetch(ACCEPT, *self._columns(many, classes, keys))

    def _columns(
        self, many: range, classes: Sequence[tuple[str, int]], keys: int
    ) -> tuple[list[Any], ...]:
        mixed = [classes[n % len(classes)] for n in many]
        size = len(many)
        return Acceptance(
            [self.id], [self.version], [self.id] * size, [str(uuid4()) for _ in many],
            [BODY] * size, [0] * size, [None] * size, list(range(1, size + 1)), [self.id] * size,
            [0] * size, [self.numbers[name] for name, _ in mixed],
            [priority for _, priority in mixed], [len(BODY)] * size,
            keys=[f"tenant-{n % keys}" for n in many] if keys else [],
        ).columns()  # fmt: skip

    async def claim(self, limits: str | None = None, wanted: int = BATCH) -> list[Any]:
        """Claim messages for the host."""
        self._claims += 1
        return await self.connection.fetch(
            SERVE, self._host, self._claims, [self._consumers], [wanted], ["strict"], [limits], [1],
            [self.id],
        )  # fmt: skip

    async def complete(self, rows: Sequence[Any]) -> None:
        """Complete claimed messages."""
        self._claims += 1
        numbers, locks = [row["sequence"] for row in rows], [row["token"] for row in rows]
        stale = await self.connection.fetch(COMPLETE, self._host, self._claims, numbers, locks)
        assert not stale

    async def timed_claim(self, limits: str | None, wanted: int) -> tuple[list[Any], float]:
        """Claim messages; also return the milliseconds that it took."""
        began = time.perf_counter()
        rows = await self.claim(limits, wanted)
        return rows, (time.perf_counter() - began) * 1000

    async def activity(self) -> Activity:
        """Return what the connection has read and written; only PostgreSQL 18 and later know."""
        if self.connection.get_server_version() < (18,):
            return Activity()
        await self.connection.execute("select pg_stat_force_next_flush()")
        row = await self.connection.fetchrow(ACTIVITY)
        assert row is not None
        return Activity(*map(int, row))

    async def through(self, count: int, classes: Sequence[tuple[str, int]], keys: int = 0) -> None:
        """Send, claim and complete."""
        await self.accept(count, classes, keys)
        await self.drain(count)

    async def drain(self, count: int) -> None:
        """Claim and complete, one statement after the other."""
        for _ in range(count // BATCH):
            await self.complete(await self.claim())

    async def drain_with(self, other: Line, count: int) -> None:
        """Drain by two connections, half by each."""
        await asyncio.gather(self.drain(count // 2), other.drain(count // 2))

    async def costs(self, count: int, classes: Sequence[tuple[str, int]]) -> tuple[float, ...]:
        """Return what a message costs the server, in microseconds: sent, claimed, completed."""
        claimed: list[list[Any]] = []

        async def claims() -> None:
            claimed.extend([await self.claim() for _ in range(count // BATCH)])

        async def completes() -> None:
            for rows in claimed:
                await self.complete(rows)

        steps = (self.accept(count, classes), claims(), completes())
        return tuple([(await self.cost(step, count)).cpu for step in steps])

    async def cost(self, step: Awaitable[None], count: int) -> Cost:
        """Await a step that deals with so many messages; return what it took."""
        backend = self.connection.get_server_pid()
        cpu, began = backend_seconds(backend), time.perf_counter()
        await step
        seconds, used = time.perf_counter() - began, backend_seconds(backend) - cpu
        return Cost(count / seconds, used / count * 1e6)

    @asynccontextmanager
    async def second(self) -> AsyncIterator[Line]:
        """Yield another host with a connection of its own to the same queue."""
        connection = await asyncpg.connect(self._url)
        try:
            other = Line(self._url, connection, self.id, self.version)
            await other.prepare()
            yield other
        finally:
            await connection.close()


def backend_seconds(backend: int) -> float:
    """Seconds of processor time of one process; 0 without /proc."""
    try:
        fields = Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


@asynccontextmanager
async def line(url: str, name: str, **options: Any) -> AsyncIterator[Line]:
    """Make a queue, and a connection that works on it."""
    app = App(settings=settings.load({"database_url": url}, environ={}))
    queue = app.queue(name, **options)
    async with app:
        await queue.ensure()
    connection = await asyncpg.connect(url)
    try:
        sql = "select id, version from relevo.message_entity where key = $1"
        [row] = await connection.fetch(sql, name)
        made = Line(url, connection, row["id"], row["version"])
        await made.prepare()
        yield made
    finally:
        await connection.close()
