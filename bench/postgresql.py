"""What a schema of another name costs, and what JIT costs behind a pooler: nothing."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from msgspec.structs import replace
from tests.kernel.postgres.servers import debian_programs, pgbouncer, server

from bench import Figure
from bench.jobs import JOBS, RELEVO
from bench.jobs_peers.run import DRAINED, Side, fresh_database
from relevo.kernel import telemetry
from relevo.kernel.postgres.binding import DEFAULT
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

ROUNDS: Final = int(os.environ.get("BENCH_POSTGRESQL_ROUNDS", "9"))
ACCESS: Final = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
SCHEMA: Final = "shop"

HOW: Final = f"""
One worker process drains quick jobs that are kept and were submitted by the thousand; both sides
take turns. Schema: {DRAINED * JOBS:,} jobs on the embedded server. JIT: {JOBS:,} jobs on Debian's
PostgreSQL through PgBouncer in transaction mode, with `jit` set on the database. Medians of
{ROUNDS} rounds; standard error shows the spread.
"""


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    return await _schemas() + await _jit()


async def _schemas() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        embedded = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            async with AsyncExitStack() as stack:
                sides = {
                    schema: await stack.enter_async_context(_side(embedded.url, schema, schema))
                    for schema in (SCHEMA, DEFAULT)
                }
                medians = await _turns(sides, DRAINED * JOBS)
        finally:
            await asyncio.to_thread(embedded.leave)
    return _figures("drain in a named schema", medians[SCHEMA], medians[DEFAULT], 0.98)


async def _jit() -> list[Figure]:
    programs = debian_programs()
    if programs is None:
        print("skipped: Debian's PostgreSQL is not installed", file=sys.stderr)
        return []
    with ExitStack() as started:
        port = started.enter_context(server(programs, ACCESS, {"synchronous_commit": "off"}, {}))
        url = f"postgresql://relevo@127.0.0.1:{port}/relevo"
        pooled = started.enter_context(pgbouncer(url))
        async with AsyncExitStack() as stack:
            sides = {
                jit: await stack.enter_async_context(_side(url, DEFAULT, jit, pooled, jit))
                for jit in ("on", "off")
            }
            medians = await _turns(sides, JOBS)
    return _figures("drain through PgBouncer, jit on", medians["on"], medians["off"], 0.9)


def _figures(
    name: str, measured: Mapping[str, float], beside: Mapping[str, float], bound: float
) -> list[Figure]:
    """The rate, and the CPU time of worker and server together, which others disturb less."""
    return [
        Figure(name=name, measured=measured["rate"], unit="jobs/s", beside=beside["rate"],
               bound=bound),
        Figure(name=f"{name}: CPU for 1,000 jobs", measured=measured["cpu"] * 1000, unit="ms",
               beside=beside["cpu"] * 1000),
    ]  # fmt: skip


@asynccontextmanager
async def _side(
    url: str, schema: str, name: str, pooled: str | None = None, jit: str = "off"
) -> AsyncIterator[Side]:
    """Relevo in a schema of a fresh database, reached directly or through a pooler."""
    async with fresh_database(url, f"bench_{name}") as own:
        connection = await asyncpg.connect(own)
        await connection.execute(f"alter database bench_{name} set jit = {jit}")
        way = urlunsplit(urlsplit(pooled)._replace(path=urlsplit(own).path)) if pooled else own
        peer = replace(
            RELEVO,
            unfinished=RELEVO.unfinished.replace("relevo.", f"{schema}."),
            clear=RELEVO.clear.replace("relevo.", f"{schema}."),
        )
        side = Side(
            peer, [sys.executable, "-m", "bench.jobs_side", f"--schema={schema}"], way, connection
        )
        await side.prepare()
        try:
            yield side
        finally:
            await connection.close()


async def _turns(sides: Mapping[str, Side], jobs: int) -> dict[str, dict[str, float]]:
    """Let sides drain in turns, after one round that does not count; return the medians."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            one = await sides[name].drain(1, jobs)
            cpu = one["worker_cpu_per_1000"] + one["postgres_cpu_per_1000"]
            if turn:
                found[name].append({"rate": one["drain_1_per_second"], "cpu": cpu})
    for name, many in found.items():
        for key in ("rate", "cpu"):
            shown = ", ".join(f"{one:,.4g}" for one in sorted(each[key] for each in many))
            print(f"{name}, {key}: {shown}", file=sys.stderr)
    return {
        name: {key: statistics.median(each[key] for each in many) for key in ("rate", "cpu")}
        for name, many in found.items()
    }
