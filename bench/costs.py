"""Where the time of a single call goes: our process, PostgreSQL, and waiting; and its WAL.

One caller awaits each call, with product defaults, as a web request does. Beside each call stands a
plain `insert` of about the same row by the bare driver, and a statement that does nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from msgspec import Struct

from bench import Figure
from bench.costs_http import http_calls
from relevo import App, settings
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

CALLS: Final = int(os.environ.get("BENCH_COSTS_CALLS", "1000"))
ROUNDS: Final = int(os.environ.get("BENCH_COSTS_ROUNDS", "5"))
TEXT: Final = "x" * 180
INSERT: Final = "insert into bench_row (body) values ($1)"

HOW: Final = f"""
{CALLS:,} calls a round, one after the other, medians of {ROUNDS} rounds in which all calls take
turns; embedded PostgreSQL, fsync on, a host beside the caller for jobs and messages that run.
CPU of PostgreSQL is that of all its processes, from /proc; waiting is what is left of the clock:
the disk, the network stack and the scheduler. "Submit to end" is one job on an idle host, from the
call to the result that `wait` returns. HTTP calls have a server in a process of its own; its CPU
counts, that of the client does not.
"""


class Cost(Struct, frozen=True):
    """What one call took, in microseconds and bytes."""

    clock: float
    process: float
    server: float
    wal: float

    @property
    def waiting(self) -> float:
        """What is neither our CPU nor that of PostgreSQL."""
        return max(0.0, self.clock - self.process - self.server)


class Meter:
    """Reads clocks, processor times and the position of the log."""

    def __init__(self, connection: asyncpg.Connection, postmaster: int) -> None:
        self._connection = connection
        self._postmaster = postmaster

    async def cost(
        self, call: Callable[[int], Awaitable[object]], numbers: range, process: int
    ) -> Cost:
        """Measure calls, one after the other; `process` is whose CPU is that of our side."""
        wal = await self._wal()
        server, own, clock = self._server(), on_cpu(process), time.perf_counter()
        for number in numbers:
            await call(number)
        seconds = time.perf_counter() - clock
        own, server = on_cpu(process) - own, self._server() - server
        spent = (seconds * 1e6, own * 1e6, server * 1e6, await self._wal() - wal)
        return Cost(*(part / len(numbers) for part in spent))

    async def _wal(self) -> float:
        sql = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
        return float(await self._connection.fetchval(sql))

    def _server(self) -> float:
        return sum(on_cpu(pid) for pid in children(self._postmaster))


def on_cpu(pid: int) -> float:
    """Return the seconds that the threads of a process have run; 0 when it has ended."""
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]


async def run() -> list[Figure]:
    """Measure every call in turns."""
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            return figures(await _measured(server.url, Path(folder)))
        finally:
            await asyncio.to_thread(server.leave)


async def _measured(url: str, folder: Path) -> Mapping[str, Cost]:
    rounds: dict[str, list[Cost]] = {}
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(_connected(url))
        postmaster = await connection.fetchval("select pg_read_file('postmaster.pid')")
        meter = Meter(connection, int(postmaster.split()[0]))
        calls = await stack.enter_async_context(_calls(url, connection))
        calls |= await stack.enter_async_context(http_calls(url, folder))
        numbers = itertools.count()
        for call, _ in calls.values():
            await meter.cost(call, _next(numbers, 50), os.getpid())
        for _ in range(ROUNDS):
            for name, (call, process) in calls.items():
                cost = await meter.cost(call, _next(numbers, CALLS), process)
                rounds.setdefault(name, []).append(cost)
    return {name: _middle(costs) for name, costs in rounds.items()}


def _next(numbers: itertools.count[int], count: int) -> range:
    first = next(numbers)
    for _ in range(count - 1):
        next(numbers)
    return range(first, first + count)


def _middle(costs: list[Cost]) -> Cost:
    return Cost(
        *(
            statistics.median(getattr(cost, field) for cost in costs)
            for field in Cost.__struct_fields__
        )
    )


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "create table bench_row (id bigint generated always as identity primary key, body text)"
        )
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _calls(
    url: str, connection: asyncpg.Connection
) -> AsyncIterator[dict[str, tuple[Callable[[int], Awaitable[object]], int]]]:
    """Yield what is measured, and whose CPU is our side's."""
    app = App(settings=settings.load({"database_url": url}, environ={}))

    @app.job("run")
    async def run_job(text: str) -> None: ...

    async with app.host():
        items = app.container("items", partition_key="/pk")
        queue = app.queue("bench")
        await queue.ensure()
        await app.router.set_distribution_policy("fair", mode="longestIdle", offer_ttl=60)
        await app.router.set_queue("bench", distribution_policy="fair")

        async def submitted(number: int) -> None:
            await app.jobs.submit("nobody", {"text": TEXT, "number": number})

        async def ended(number: int) -> None:
            job = await app.jobs.submit("run", {"text": TEXT})
            await job.wait()

        async def routed(number: int) -> None:
            await app.router.create_job("chat", queue="bench", job_id=f"job-{number}")

        calls: dict[str, Callable[[int], Awaitable[object]]] = {
            "nothing, by Relevo's pool": lambda _: app.database.fetchval("select 1"),
            "insert, by the bare driver": lambda _: connection.execute(INSERT, TEXT),
            "job, submit": submitted,
            "message, send": lambda _: queue.send(TEXT),
            "item, upsert": lambda n: items.upsert({"id": str(n), "pk": "a", "text": TEXT}),
            "router job, create": routed,
            "job, submit to end": ended,
        }
        yield {name: (call, os.getpid()) for name, call in calls.items()}


def figures(costs: Mapping[str, Cost]) -> list[Figure]:
    """Return a row for each part of each call."""
    bare = costs["insert, by the bare driver"]
    return [
        figure
        for name, cost in costs.items()
        for figure in (
            Figure(name=name, measured=cost.clock, unit="µs", beside=bare.clock),
            Figure(name="  our process", measured=cost.process, unit="µs", beside=bare.process),
            Figure(name="  PostgreSQL", measured=cost.server, unit="µs", beside=bare.server),
            Figure(name="  waiting", measured=cost.waiting, unit="µs", beside=bare.waiting),
            Figure(name="  WAL", measured=cost.wal, unit="bytes", beside=bare.wal),
        )
    ]
