"""What single calls that ride in groups cost, beside asyncpg used by hand."""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bench import Figure
from relevo import settings
from relevo.postgres.database import Database
from relevo.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

HOW: Final = """
A row is a uuid (primary key) and 100 bytes. Bare: one asyncpg connection inserts the same rows with
`insert … select from unnest` in batches of 500, or one by one with `execute`. Grouped: so many callers
each await one `Group.call` after the other. Embedded PostgreSQL, fsync on. Both sides take turns;
rates are medians over the rounds, each on an empty table.
"""

TABLE: Final = "create table if not exists bench_row (id uuid primary key, body bytea not null)"
INSERT: Final = "insert into bench_row (id, body) select * from unnest($1::uuid[], $2::bytea[])"
INSERT_ONE: Final = "insert into bench_row (id, body) values ($1, $2)"

ROUNDS: Final = 7
ROWS: Final = 60_000
BATCH: Final = 500
IDLE_CALLS: Final = 300
CALLERS: Final = (10, 100, 1_000, 2_000, 10_000)

Row = tuple[UUID, bytes]


async def run() -> list[Figure]:
    """Measure on a server of its own, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)
        told = settings.load({"home": Path(folder) / "home"}, environ={})
        async with await Database.open(told) as database:
            await database.write(TABLE)
            bare = await database.endpoint.connect()
            try:
                return await _measure(database, bare)
            finally:
                await bare.close()


async def _measure(database: Database, bare: asyncpg.Connection) -> list[Figure]:
    rates: dict[str, list[float]] = {}
    sides = ["bare", *map(str, CALLERS)]
    for _ in range(ROUNDS):
        for side in sides:
            rows = _rows(ROWS if side != "10" else ROWS // 10)
            await bare.execute("truncate bench_row")
            if side == "bare":
                rate = await _bare_rate(bare, rows)
            else:
                rate = await _grouped_rate(database, rows, int(side))
            assert await bare.fetchval("select count(*) from bench_row") == len(rows)
            rates.setdefault(side, []).append(rate)
    one_bare, one_grouped = await _idle_seconds(database, bare)
    middle = {side: statistics.median(values) for side, values in rates.items()}
    return [
        Figure(
            name=f"{callers:,} callers",
            measured=middle[str(callers)],
            unit="rows/s",
            beside=middle["bare"],
            bound=0.8 if callers == 2_000 else None,
        )
        for callers in CALLERS
    ] + [
        Figure(
            name="one call, idle",
            measured=one_grouped * 1000,
            unit="ms",
            beside=one_bare * 1000,
            bound=1.5,
            sense="at_most",
        )
    ]


def _rows(count: int) -> list[Row]:
    entropy, body = os.urandom(16 * count), os.urandom(100)
    return [(UUID(bytes=entropy[at : at + 16]), body) for at in range(0, 16 * count, 16)]


async def _insert(connection: Database | asyncpg.Connection, rows: Sequence[Row]) -> None:
    ids, bodies = [row[0] for row in rows], [row[1] for row in rows]
    if isinstance(connection, Database):
        await connection.write(INSERT, ids, bodies)
    else:
        await connection.execute(INSERT, ids, bodies)


async def _bare_rate(connection: asyncpg.Connection, rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    for at in range(0, len(rows), BATCH):
        await _insert(connection, rows[at : at + BATCH])
    return len(rows) / (time.perf_counter() - started)


async def _grouped_rate(database: Database, rows: Sequence[Row], callers: int) -> float:
    async with _group(database) as group:
        left = iter(rows)

        async def caller() -> None:
            for row in left:
                await group.call(row)

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return len(rows) / (time.perf_counter() - started)


async def _idle_seconds(database: Database, bare: asyncpg.Connection) -> tuple[float, float]:
    """One call at a time, alternating with a bare one."""
    await bare.execute("truncate bench_row")
    rows = iter(_rows(2 * IDLE_CALLS))
    seconds: tuple[list[float], list[float]] = ([], [])
    async with _group(database) as group:
        for row, side in zip(rows, itertools.cycle((0, 1)), strict=False):
            started = time.perf_counter()
            if side:
                await group.call(row)
            else:
                await bare.execute(INSERT_ONE, *row)
            seconds[side].append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


@asynccontextmanager
async def _group(database: Database) -> AsyncIterator[Group[Row, None]]:
    async def statement(rows: Sequence[Row]) -> list[None]:
        await _insert(database, rows)
        return [None] * len(rows)

    group: Group[Row, None] = Group("bench", statement, metrics=database.metrics)
    yield group
    await group.close()
