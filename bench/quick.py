"""The figures that users meet first, beside peers, in at most three minutes: `make bench-quick`.

    python -m bench.quick                 as many rounds as fit, at least one, at most five
    python -m bench.quick --minutes 10    the same with more time
    python -m bench.quick --paste         prints a section for bench/RESULTS.md as well

All sides take turns in each round, on a fresh database of one embedded server with fsync on. The
table has medians; ratios are those of medians beside one peer. Peers are installed outside of the
repository at the first run, which takes longer; one that cannot be is left out with a message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench.jobs import RELEVO
from bench.jobs_peers import PEERS, Unavailable, default_folder
from bench.jobs_peers.install import installed
from bench.jobs_peers.run import POOLS, Side, fresh_database
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

JOBS: Final = 20_000
SINGLES: Final = 500
PICKUP_SECONDS: Final = 4
ROUNDS_MAX: Final = 5
MINUTES: Final = 3.0
DEFAULTS: Final = "Relevo, defaults"
WITHOUT: Final = "Relevo, kept, no events"
DELETED: Final = "Relevo, deleted, no events"
OWNED: Final = "Relevo, defaults, owned"
GRAPHILE: Final = "graphile-worker"
PGQUEUER: Final = "pgqueuer"
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    DEFAULTS: {"BENCH_JOBS_EVENTS": "ends", "BENCH_JOBS_DELETE": "0", "BENCH_JOBS_OWNER": "0"},
    WITHOUT: {"BENCH_JOBS_EVENTS": "none", "BENCH_JOBS_DELETE": "0", "BENCH_JOBS_OWNER": "0"},
    DELETED: {"BENCH_JOBS_EVENTS": "none", "BENCH_JOBS_DELETE": "1", "BENCH_JOBS_OWNER": "0"},
    OWNED: {"BENCH_JOBS_EVENTS": "ends", "BENCH_JOBS_DELETE": "0", "BENCH_JOBS_OWNER": "1"},
}
COLUMNS: Final = {
    "single": ("one after the other", "/s"),
    "bulk": ("bulk", "/s"),
    "drain_1_per_second": ("drain, 1 process", "/s"),
    "drain_2_per_second": ("drain, 2 processes", "/s"),
    "pickup_p50_ms": ("pickup p50", "ms"),
    "pickup_p99_ms": ("pickup p99", "ms"),
}
CONDITIONS: Final = (
    f"{JOBS:,} no-op jobs of 200 bytes for each drain, bulk 1,000 at a time, {SINGLES} single"
    f" submits, pickup at 50/s for {PICKUP_SECONDS} s; fsync on"
)


class Promise(Struct, frozen=True):
    """A ratio that one side has to reach beside a peer."""

    side: str
    column: str
    peer: str
    at_least: float


PROMISES: Final = (
    Promise(DEFAULTS, "single", PGQUEUER, 1.0),
    Promise(DEFAULTS, "drain_1_per_second", GRAPHILE, 1.8),
    Promise(DEFAULTS, "drain_2_per_second", GRAPHILE, 1.8),
    Promise(WITHOUT, "drain_1_per_second", GRAPHILE, 2.2),
    Promise(WITHOUT, "drain_2_per_second", GRAPHILE, 2.2),
    Promise(DELETED, "drain_1_per_second", GRAPHILE, 2.5),
    Promise(DELETED, "drain_2_per_second", GRAPHILE, 2.5),
    Promise(OWNED, "drain_1_per_second", GRAPHILE, 1.5),
    Promise(OWNED, "drain_2_per_second", GRAPHILE, 1.5),
    Promise(DEFAULTS, "pickup_p50_ms", GRAPHILE, 1.0),
    Promise(DEFAULTS, "pickup_p99_ms", GRAPHILE, 1.0),
)
Rounds = dict[str, list[dict[str, float]]]


class QuickSide(Side):
    """A side whose pickup takes a few seconds."""

    latency_seconds = PICKUP_SECONDS

    async def quick(self, *, alone: bool) -> dict[str, float]:
        """Measure everything, or with `alone` the drains."""
        await self.prepare()
        found: dict[str, float] = {}
        if not alone:
            found["single"] = SINGLES / await self.submit("single", SINGLES, 1, POOLS[0])
            found["bulk"] = JOBS / await self.submit("bulk", JOBS, self.chunk)
        for workers in (1, 2):
            found |= await self.drain(workers, JOBS)
        return found if alone else found | await self.pickup()


async def measured(url: str, side: str, program: list[str] | None) -> dict[str, float]:
    """Measure one side on a database of its own; `program` starts a peer's."""
    os.environ.update(WAYS.get(side, {}))
    async with fresh_database(url, "bench_quick") as own:
        connection = await asyncpg.connect(own)
        try:
            peer = RELEVO if program is None else PEERS[side]
            command = program or [sys.executable, "-m", "bench.jobs_side"]
            return await QuickSide(peer, command, own, connection).quick(
                alone=program is None and side != DEFAULTS
            )
        finally:
            await connection.close()


def programs(console: Console) -> dict[str, list[str]]:
    """Return how the programs of peers are started; installs those that are missing."""
    found = {}
    for name in (GRAPHILE, PGQUEUER):
        try:
            found[name] = installed(PEERS[name], default_folder())
        except Unavailable as error:
            console.print(f"left out: {error}", style="yellow")
    return found


async def rounds(url: str, peers: Mapping[str, list[str]], seconds: float) -> Rounds:
    """Let all sides take turns until the time is over."""
    found: Rounds = {}
    began = time.monotonic()
    for number in range(1, ROUNDS_MAX + 1):
        for side in (*WAYS, *peers):
            found.setdefault(side, []).append(await measured(url, side, peers.get(side)))
        if (time.monotonic() - began) * (number + 1) / number > seconds:
            break
    return found


def medians(found: Rounds) -> dict[str, dict[str, float]]:
    """Return the medians of each side."""
    return {
        side: {column: statistics.median(one[column] for one in many) for column in many[0]}
        for side, many in found.items()
    }


def ratio(promise: Promise, middle: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return how a side stands to a peer, of times the other way round; None without the peer."""
    if promise.peer not in middle:
        return None
    ours, theirs = (middle[one][promise.column] for one in (promise.side, promise.peer))
    return theirs / ours if promise.column.endswith("_ms") else ours / theirs


def cells(found: Rounds) -> list[list[str]]:
    """Return the rows of the table: medians, and the lowest and highest round in brackets."""
    rows = []
    for side, many in found.items():
        row = [side]
        for column, (_, unit) in COLUMNS.items():
            values = sorted(one[column] for one in many if column in one)
            shown = [f"{one:.1f}" if unit == "ms" else f"{one:,.0f}" for one in values]
            spread = f" ({shown[0]} to {shown[-1]})" if len(values) > 1 else ""
            row.append(f"{shown[len(shown) // 2]}{spread}" if values else "")
        rows.append(row)
    return rows


def promised(found: Rounds) -> list[list[str]]:
    """Return what was promised, measured, and whether it holds."""
    middle, rows = medians(found), []
    for one in PROMISES:
        if (value := ratio(one, middle)) is not None:
            name = f"{one.side}: {COLUMNS[one.column][0]} beside {one.peer}"
            holds = "holds" if value >= one.at_least else "missed"
            rows.append([name, f"≥ {one.at_least}", f"{value:.2f}", holds])
    return rows


def machine() -> str:
    """Return date, machine and versions."""
    model = "unknown processor"
    with Path("/proc/cpuinfo" if Path("/proc/cpuinfo").exists() else os.devnull).open() as text:
        for line in text:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {model}, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, embedded PostgreSQL 18, load {os.getloadavg()[0]:.1f}"
    )


HEADS: Final = ["side", *(f"{name} ({unit})" for name, unit in COLUMNS.values())]
PROMISE_HEADS: Final = ["figure", "promised", "ratio", ""]


def shown(heads: list[str], rows: list[list[str]]) -> Table:
    """Return a table for a terminal."""
    table = Table()
    for n, head in enumerate(heads):
        table.add_column(head, justify="right" if n else "left")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table for bench/RESULTS.md."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


async def run(minutes: float, *, paste: bool) -> int:
    """Measure and print; 1 if a promise is missed."""
    telemetry.configure_logs("json", "warning")
    console = Console()
    header = machine()
    peers = await asyncio.to_thread(programs, console)
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            found = await rounds(server.url, peers, minutes * 60)
        finally:
            await asyncio.to_thread(server.leave)
    count = len(found[DEFAULTS])
    about = f"{header}, {os.getloadavg()[0]:.1f} at the end; {count} rounds. {CONDITIONS}."
    console.print(about, highlight=False)
    console.print(shown(HEADS, cells(found)), shown(PROMISE_HEADS, promised(found)))
    if paste:
        print(f"\n{about}\n\n{markdown(HEADS, cells(found))}\n")
        print(markdown(PROMISE_HEADS, promised(found)))
    return int(any(row[-1] == "missed" for row in promised(found)))


if __name__ == "__main__":
    reader = argparse.ArgumentParser(prog="bench-quick", description=__doc__)
    reader.add_argument("--minutes", type=float, default=MINUTES)
    reader.add_argument("--paste", action="store_true")
    given = reader.parse_args()
    sys.exit(asyncio.run(run(given.minutes, paste=given.paste)))
