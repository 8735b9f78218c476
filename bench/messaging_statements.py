"""The statements of messaging called by hand on one connection: the upper bound of what is built
on them, and what they cost the server.

The same functions with the same arrays and batches as Relevo's own processes send, without these.
"""

from __future__ import annotations

import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import asyncpg
from msgspec import Struct

from relevo import App, settings
from relevo.messaging.core import tokens
from relevo.messaging.core.acceptance import Acceptance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from relevo.messaging import Queue

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
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Cost(Struct, frozen=True):
    """What a step took for each message."""

    per_second: float
    cpu: float
    """Microseconds of the server's processor."""


class Line:
    """A queue and a connection that works on it as a host does."""

    def __init__(self, connection: asyncpg.Connection, queue: Queue, row: asyncpg.Record) -> None:
        self.connection = connection
        self.queue = queue
        self.id: int = row["id"]
        self.version: int = row["version"]
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
            mixed = [classes[n % len(classes)] for n in many]
            await self.connection.fetch(
                ACCEPT,
                *Acceptance(
                    [self.id], [self.version], [self.id] * len(many), [str(uuid4()) for _ in many],
                    [BODY] * len(many), [0] * len(many), [None] * len(many),
                    list(range(1, len(many) + 1)), [self.id] * len(many), [0] * len(many),
                    [self.numbers[name] for name, _ in mixed], [priority for _, priority in mixed],
                    [len(BODY)] * len(many), keys=[f"tenant-{n % keys}" for n in many] if keys else [],
                ).columns(),
            )  # fmt: skip

    async def claim(self, limits: str | None = None) -> list[Any]:
        """Claim a batch for the host."""
        self._claims += 1
        return await self.connection.fetch(
            SERVE, self._host, self._claims, [self._consumers], [BATCH], ["strict"], [limits], [1],
            [self.id],
        )  # fmt: skip

    async def complete(self, rows: Sequence[Any]) -> None:
        """Complete claimed messages."""
        self._claims += 1
        numbers, locks = [row["sequence"] for row in rows], [row["token"] for row in rows]
        stale = await self.connection.fetch(COMPLETE, self._host, self._claims, numbers, locks)
        assert not stale

    async def cost(self, step: Any, count: int) -> Cost:
        """Await a step that deals with so many messages; return what it took."""
        backend = self.connection.get_server_pid()
        cpu, began = backend_seconds(backend), time.perf_counter()
        await step
        seconds, used = time.perf_counter() - began, backend_seconds(backend) - cpu
        return Cost(count / seconds, used / count * 1e6)

    async def claims(self, count: int, limits: str | None = None) -> list[list[Any]]:
        """Claim so many messages."""
        return [await self.claim(limits) for _ in range(count // BATCH)]

    async def drain(self, count: int) -> None:
        """Claim and complete, one statement after the other."""
        for _ in range(count // BATCH):
            await self.complete(await self.claim())

    async def completes(self, batches: Sequence[Sequence[Any]]) -> None:
        """Complete what was claimed."""
        for rows in batches:
            await self.complete(rows)


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
        made = Line(connection, queue, await connection.fetchrow(sql, name))
        await made.prepare()
        yield made
    finally:
        await connection.close()


def token_of(row: Any) -> Any:
    """Return the lock of a claimed row."""
    return tokens.token_of(row["sequence"], row["token"])
