"""Measures a peer: starts its own programs in its own language on a fresh database, and adds up.

A program is started with a role. `prepare` makes the schema. `single`, `bulk` and `paced` submit
jobs and print how long that took. `work` says that it is loaded, begins at a line on standard
input, tells every 20 ms how many jobs it had, and ends at the next line.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import asyncpg
import msgspec
from msgspec import Struct

from bench.jobs_peers.install import PEERS, Peer, installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAYLOAD_BYTES: Final = 200
DRAINED: Final = 5
"""So many times as many jobs are worked off as submitted: the beginning of a drain is no drain."""
CALLERS: Final = 100
POOLS: Final = (10, 25)
"""Connections of the pool that single submits go through; which is better differs by peer."""
CHUNK: Final = 1_000
LATENCY_PER_SECOND: Final = 50
LATENCY_SECONDS: Final = 20
WORKERS: Final = (1, 2)
STEP_SECONDS_MAX: Final = 300.0
_LINE_BYTES_MAX: Final = 2**22
_TICKS: Final = os.sysconf("SC_CLK_TCK")

HOW: Final = f"""
Peers: in processes of their own language on a fresh database of the same server; payloads of
{PAYLOAD_BYTES} bytes, handlers that do nothing. Single: {CALLERS} callers each await one submit
after the other over a pool of {POOLS[0]} or {POOLS[1]} connections, whichever is better. Bulk:
their own call for many, {CHUNK:,} at a time, one call after the other. Drain: all jobs are there
before loaded workers begin; from the first call of a handler until the database has none left that
is not done. Pickup: from the call that submits to the call of the handler, {LATENCY_PER_SECOND}
jobs a second for {LATENCY_SECONDS} s, one worker process. CPU: of the worker process and of
PostgreSQL while one worker drains.
"""


class _Told(Struct, frozen=True):
    """What a worker says of itself; times are milliseconds of the machine's monotonic clock."""

    cpu: float
    count: int = 0
    first: float = 0.0
    delays: list[float] = []


class _Took(Struct, frozen=True):
    seconds: float


async def measure(peer: str, database_url: str, folder: Path, jobs: int) -> dict[str, float]:
    """Return the figures of a peer on the server at a URL; it is installed below `folder` first.

    Rates are jobs per second, latencies milliseconds, CPU seconds per 1,000 jobs. Raises
    `Unavailable` if the peer cannot be installed.
    """
    found = PEERS[peer]
    program = await asyncio.to_thread(installed, found, folder)
    async with fresh_database(database_url, f"bench_{peer.replace('-', '_')}") as url:
        connection = await asyncpg.connect(url)
        try:
            return await Side(found, program, url, connection).figures(jobs)
        finally:
            await connection.close()


class Side:
    """A peer on its database."""

    chunk = CHUNK
    latency_seconds = LATENCY_SECONDS

    def __init__(
        self, peer: Peer, program: list[str], url: str, connection: asyncpg.Connection | None
    ) -> None:
        self._peer = peer
        self._program = program
        self._url = url
        self._connection = connection

    async def figures(self, jobs: int) -> dict[str, float]:
        """Measure everything."""
        await self.prepare()
        singles = max(jobs // 4, CALLERS)
        took = [await self.submit("single", singles, CALLERS, pool) for pool in POOLS]
        found = {
            "single_per_second": singles / min(took),
            "bulk_per_second": jobs / await self.submit("bulk", jobs, self.chunk),
        }
        return found | await self._drains(jobs) | await self.pickup()

    async def drains(self, jobs: int) -> dict[str, float]:
        """Measure only how fast jobs are worked off."""
        await self.prepare()
        return await self._drains(jobs)

    async def _drains(self, jobs: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for workers in WORKERS:
            found |= await self.drain(workers, DRAINED * jobs)
        return found

    async def prepare(self) -> None:
        """Make the schema."""
        await self._run("prepare")

    async def submit(self, role: str, count: int, *arguments: int) -> float:
        """Submit to an empty queue; return the seconds it took."""
        await self.clear()
        return await self._run(role, count, PAYLOAD_BYTES, *arguments)

    async def drain(self, workers: int, jobs: int) -> dict[str, float]:
        """Measure how fast jobs that are there are worked off."""
        await self.submit("bulk", jobs, self.chunk)
        async with AsyncExitStack() as stack:
            started = [await stack.enter_async_context(self._worker()) for _ in range(workers)]
            before = sum(one.told.cpu for one in started), await self.server_seconds()
            for one in started:
                one.say("go")
            await _until_counted(started, jobs)
            ended = await self.until_done()
            server_after = await self.server_seconds()
            for one in started:
                await one.finish()
            assert sum(one.told.count for one in started) == jobs, "a job ran twice"
            after = sum(one.told.cpu for one in started), server_after
            began = min(one.told.first for one in started if one.told.count)
        rate = {f"drain_{workers}_per_second": jobs / (ended - began) * 1000}
        if workers > 1:
            return rate
        ours, servers = ((then - at) / jobs * 1000 for at, then in zip(before, after, strict=True))
        return rate | {"worker_cpu_per_1000": ours, "postgres_cpu_per_1000": servers}

    async def clear(self) -> None:
        """Remove what is there."""
        assert self._connection is not None
        await self._connection.execute(self._peer.clear)

    async def server_seconds(self) -> float:
        """Return what the server has used of the processor."""
        assert self._connection is not None
        return _server_cpu(await self._connection.fetchval("select pg_backend_pid()"))

    async def until_done(self) -> float:
        """Wait until nothing is left, after workers have had everything; return the time."""
        assert self._connection is not None
        async with asyncio.timeout(STEP_SECONDS_MAX):
            while await self._connection.fetchval(self._peer.unfinished):
                await asyncio.sleep(0.002)
        return now()

    async def pickup(self) -> dict[str, float]:
        """Measure how soon a job is picked up on an idle system."""
        await self.clear()
        count = LATENCY_PER_SECOND * self.latency_seconds
        async with self._worker() as worker:
            worker.say("go")
            await self._run(
                "single", 0, PAYLOAD_BYTES, CALLERS, POOLS[0]
            )  # it has begun when these are done
            await _until_counted([worker], CALLERS)
            await self._run("paced", count, PAYLOAD_BYTES, LATENCY_PER_SECOND)
            await _until_counted([worker], CALLERS + count)
            await worker.finish()
        took = sorted(worker.told.delays)
        assert len(took) == count
        return {"pickup_p50_ms": took[count // 2], "pickup_p99_ms": took[count * 99 // 100]}

    async def _run(self, role: str, *arguments: int) -> float:
        process = await asyncio.create_subprocess_exec(
            *self._program, role, self._url, *map(str, arguments), stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(STEP_SECONDS_MAX):
                said, _ = await process.communicate()
        finally:
            await _end(process)
        assert process.returncode == 0, f"{self._peer.name} {role} ended with {process.returncode}"
        return msgspec.json.decode(said, type=_Took).seconds if said else 0.0

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[_Worker]:
        process = await asyncio.create_subprocess_exec(
            *self._program, "work", self._url,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE_BYTES_MAX,
        )  # fmt: skip
        worker = _Worker(process)
        try:
            await worker.hear()
            yield worker
        finally:
            await _end(process)


class _Worker:
    """A worker process, and what it said last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.told = _Told(0.0)

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())

    async def hear(self) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(STEP_SECONDS_MAX):
            line = await self._process.stdout.readline()
        assert line, "a worker ended before it was told to"
        self.told = msgspec.json.decode(line, type=_Told)

    async def finish(self) -> None:
        """Have it say the last figures and stop."""
        assert self._process.stdout is not None
        self.say("stop")
        async with asyncio.timeout(STEP_SECONDS_MAX):
            said, _ = await self._process.communicate()
        self.told = msgspec.json.decode(said.strip().rpartition(b"\n")[2], type=_Told)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def _until_counted(workers: list[_Worker], jobs: int) -> None:
    """Read what workers say until together they had so many jobs."""
    hearing = {asyncio.ensure_future(one.hear()): one for one in workers}
    try:
        while sum(one.told.count for one in workers) < jobs:
            done, _ = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                one = hearing.pop(task)
                task.result()
                hearing[asyncio.ensure_future(one.hear())] = one
    finally:
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)


def now() -> float:
    """Return milliseconds of the machine's monotonic clock."""
    return asyncio.get_running_loop().time() * 1000


def _server_cpu(backend: int) -> float:
    """Seconds that the server of a backend has used, ended backends included; 0 without /proc."""
    try:
        server = int(_stat(backend)[1])
        own = sum(map(int, _stat(server)[11:15]))
        running = sum(
            sum(map(int, fields[11:13]))
            for path in Path("/proc").glob("[0-9]*")
            if (fields := _stat(int(path.name))) and int(fields[1]) == server
        )
    except (OSError, IndexError):
        return 0.0
    return (own + running) / _TICKS


def _stat(process: int) -> list[str]:
    """The fields of a process after its name; none if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@asynccontextmanager
async def fresh_database(url: str, name: str) -> AsyncIterator[str]:
    """Make a database on the server at a URL, and drop it at the end."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"drop database if exists {name} with (force)")
        await connection.execute(f"create database {name}")
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            await connection.execute(f"drop database if exists {name} with (force)")
    finally:
        await connection.close()
