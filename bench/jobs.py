"""How fast jobs go in, are run and are picked up, beside graphile-worker, pg-boss and pgqueuer."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg

from bench import Figure
from bench.jobs_peers import HOW as PEERS_HOW
from bench.jobs_peers import PEERS, Unavailable, default_folder, measure
from bench.jobs_peers.install import Peer
from bench.jobs_peers.run import DRAINED, Side, fresh_database
from relevo.kernel import telemetry
from relevo.kernel.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

JOBS: Final = int(os.environ.get("BENCH_JOBS", "20000"))
OTHERS: Final = int(os.environ.get("BENCH_JOBS_OTHERS", "5000000"))
"""Completed jobs beside which a drain is measured again."""
ROUNDS: Final = 3

HOW: Final = f"""{PEERS_HOW.strip()}
Relevo: the same roles in its own processes; kept keeps every record, deleted removes those of
successes, events go to the log as it says, owned jobs are rows until they are claimed (the
others wait in parcels). Everybody takes turns; medians of {ROUNDS} rounds of {JOBS:,} jobs, drains
of {DRAINED * JOBS:,}. Beside is the best of the peers in that figure. With
{OTHERS:,} completed jobs in the table the drain of one worker is measured again, beside the same
without.
"""

RELEVO: Final = Peer(
    name="relevo",
    language="python",
    packages=(),
    unfinished="select (select count(*) from relevo.job)"
    " + (select count(*) from relevo.job_parcel)",
    clear="truncate relevo.job, relevo.job_gate, relevo.job_parcel",
)
WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    f"{kept}{how}": {
        "BENCH_JOBS_DELETE": str(int(kept == "deleted")),
        "BENCH_JOBS_EVENTS": "ends" if how == ", events" else "none",
        "BENCH_JOBS_OWNER": str(int(how == ", owned")),
    }
    for kept in ("kept", "deleted")
    for how in ("", ", events", ", owned")
}


async def run() -> list[Figure]:
    telemetry.configure_logs("json", "warning")
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        server = await asyncio.to_thread(EmbeddedServer.join, Path(folder) / "home")
        try:
            return await _measure(server.url)
        finally:
            await asyncio.to_thread(server.leave)


async def _measure(url: str) -> list[Figure]:
    rounds: dict[str, list[dict[str, float]]] = {}
    for _ in range(ROUNDS):
        for peer in PEERS:
            try:
                found = await measure(peer, url, default_folder(), JOBS)
            except Unavailable as error:
                print(f"skipped: {error}", file=sys.stderr)
                continue
            rounds.setdefault(peer, []).append(found)
        for way, environment in WAYS.items():
            found = await _ours(url, environment, drains="owned" in way)
            rounds.setdefault(way, []).append(found)
    medians = {name: _median(many) for name, many in rounds.items()}
    return _figures(medians) + await _beside_others(url)


async def _ours(url: str, environment: Mapping[str, str], *, drains: bool) -> dict[str, float]:
    """Measure everything, or drains alone."""
    os.environ.update(environment)
    async with fresh_database(url, "bench_relevo") as own:
        connection = await asyncpg.connect(own)
        try:
            side = _side(own, connection)
            return await (side.drains(JOBS) if drains else side.figures(JOBS))
        finally:
            await connection.close()


def _side(url: str, connection: asyncpg.Connection) -> Side:
    return Side(RELEVO, [sys.executable, "-m", "bench.jobs_side"], url, connection)


def _median(many: list[dict[str, float]]) -> dict[str, float]:
    return {name: sorted(one[name] for one in many)[len(many) // 2] for name in many[0]}


def _figures(medians: dict[str, dict[str, float]]) -> list[Figure]:
    def best(name: str) -> float | None:
        others = [found[name] for peer, found in medians.items() if peer in PEERS]
        return max(others) if others else None

    figures = [
        Figure(name=name, measured=medians["kept"][key], unit="jobs/s", beside=best(key),
               bound=bound)
        for name, key, bound in (
            ("single submits, 100 callers", "single_per_second", 8.0),
            ("bulk submit", "bulk_per_second", 2.0),
        )
    ]  # fmt: skip
    for way in WAYS:
        for workers in (1, 2):
            key = f"drain_{workers}_per_second"
            bound = None if "," in way else 2.0 if way == "deleted" else 1.2
            figures.append(
                Figure(name=f"drain, {way}, {workers} process{'es' * (workers > 1)}",
                       measured=medians[way][key], unit="jobs/s", beside=best(key), bound=bound)
            )  # fmt: skip
    for key, most in (("pickup_p50_ms", 3.0), ("pickup_p99_ms", 20.0)):
        figures.append(
            Figure(name=key.replace("_", " "), measured=medians["kept"][key], unit="ms",
                   beside=most, bound=1.0, sense="at_most")
        )  # fmt: skip
    for name, found in medians.items():
        figures += [
            Figure(name=f"{name}: {key.replace('_', ' ')}", measured=found[key], unit="s")
            for key in ("worker_cpu_per_1000", "postgres_cpu_per_1000")
        ]  # fmt: skip
        if name in PEERS:
            figures += [
                Figure(name=f"{name}: {key.replace('_', ' ')}", measured=value, unit="")
                for key, value in found.items() if "cpu" not in key
            ]  # fmt: skip
    return figures


async def _beside_others(url: str) -> list[Figure]:
    """The drain of one worker with and without millions of completed jobs."""
    os.environ.update(WAYS["kept"])
    rates = []
    for others in (0, OTHERS):
        async with fresh_database(url, "bench_relevo") as own:
            connection = await asyncpg.connect(own)
            try:
                side = _side(own, connection)
                await side.prepare()
                await _fill(connection, others)
                found = [await side.drain(1, DRAINED * JOBS) for _ in range(ROUNDS)]
                rates.append(sorted(one["drain_1_per_second"] for one in found)[ROUNDS // 2])
            finally:
                await connection.close()
    return [
        Figure(name=f"drain with {OTHERS:,} completed jobs", measured=rates[1], unit="jobs/s",
               beside=rates[0], bound=0.9)
    ]  # fmt: skip


async def _fill(connection: asyncpg.Connection, amount: int) -> None:
    """Completed jobs as four weeks of work leave them: none is old enough to be removed."""
    for first in range(0, amount, 500_000):
        await connection.execute(
            """insert into relevo.job_history (id, rank, created_at, modified_at, completed_at,
                 status, lane, handler, name, data)
               select relevo.uuid7(), n, at, at, at,
                 30, 'default', 'nothing', 'nothing', repeat('x', 200)
               from generate_series($1::bigint, $1::bigint + 499999) n cross join lateral (
                 select now() - (1 - n / $2::float8) * interval '28 days' as at) t""",
            first,
            amount,
        )
    await connection.execute("vacuum analyze relevo.job_history")
    await connection.execute("checkpoint")  # both begin with pages that the log has to hold whole
