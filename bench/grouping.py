"""What single calls that ride in groups cost, beside asyncpg used by hand."""

from __future__ import annotations

import asyncio
import gc
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
A row is a uuid (primary key) and 100 bytes. Grouped: so many callers each await one `Group.call`
after the other. Beside them one asyncpg connection inserts the same rows with `insert … select
from unnest` in batches of 500, or of as many as there are callers if those are fewer. Idle: one
call at a time, beside `execute` of one row. Embedded PostgreSQL, fsync on, all in one process on
asyncio's own event loop; the sides take turns, and the figures are medians. Callers use a second
core while the server works, so that other load weighs more on them than on the bare loop.
"""

TABLE: Final = "create table bench_row (id uuid primary key, body bytea not null)"
INSERT: Final = "insert into bench_row (id, body) select * from unnest($1::uuid[], $2::bytea[])"
INSERT_ONE: Final = "insert into bench_row (id, body) values ($1, $2)"

ROUNDS: Final = 9
ROWS: Final = 100_000
STATEMENTS: Final = 500
"""So many are enough where they carry few rows each."""
BATCH: Final = 500
IDLE_CALLS: Final = 1_000
CALLERS: Final = (10, 100, 1_000, 2_000, 10_000)

Row = tuple[UUID, bytes]


async def run() -> list[Figure]:
    """Measure on a server of its own, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="relevo-bench-") as folder:
        Path(folder).chmod(0o755)  # so that the account of the embedded server may enter
        told = settings.load({"home": Path(folder) / "home"}, environ={})
        async with await Database.open(told) as database:
            await database.write(TABLE)
            bare = await database.endpoint.connect()
            try:
                rates = await _rates(database, bare)
                idle = await _idle_figure(database, bare)
            finally:
                await bare.close()
    return [*rates, idle]


async def _rates(database: Database, bare: asyncpg.Connection) -> list[Figure]:
    batches = sorted({min(callers, BATCH) for callers in CALLERS})
    beside: dict[int, list[float]] = {batch: [] for batch in batches}
    grouped: dict[int, list[float]] = {callers: [] for callers in CALLERS}
    for _ in range(ROUNDS):
        rows = _rows(ROWS)
        for batch, rates in beside.items():
            await _prepare(bare)
            rates.append(await _bare_rate(bare, rows[: STATEMENTS * batch], batch))
        for callers, rates in grouped.items():
            await _prepare(bare)
            some = rows[: STATEMENTS * callers]
            rates.append(await _grouped_rate(database, some, callers))
            assert await bare.fetchval("select count(*) from bench_row") == len(some)
    return [
        Figure(
            name=f"{callers:,} callers",
            measured=statistics.median(rates),
            unit="rows/s",
            beside=statistics.median(beside[min(callers, BATCH)]),
            bound=0.8 if callers == 2_000 else None,
        )
        for callers, rates in grouped.items()
    ]


async def _prepare(bare: asyncpg.Connection) -> None:
    await bare.execute("truncate bench_row")
    gc.collect()


def _rows(count: int) -> list[Row]:
    entropy, body = os.urandom(16 * count), os.urandom(100)
    return [(UUID(bytes=entropy[at : at + 16]), body) for at in range(0, 16 * count, 16)]


async def _bare_rate(connection: asyncpg.Connection, rows: Sequence[Row], batch: int) -> float:
    started = time.perf_counter()
    for at in range(0, len(rows), batch):
        some = rows[at : at + batch]
        await connection.execute(INSERT, [row[0] for row in some], [row[1] for row in some])
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


async def _idle_figure(database: Database, bare: asyncpg.Connection) -> Figure:
    await _prepare(bare)
    one: list[float] = []
    grouped: list[float] = []
    async with _group(database) as group:
        for row, is_bare in zip(
            _rows(2 * IDLE_CALLS), itertools.cycle((True, False)), strict=False
        ):
            started = time.perf_counter()
            if is_bare:
                await bare.execute(INSERT_ONE, *row)
            else:
                await group.call(row)
            (one if is_bare else grouped).append(time.perf_counter() - started)
    return Figure(
        name="one call, idle",
        measured=statistics.median(grouped) * 1000,
        unit="ms",
        beside=statistics.median(one) * 1000,
        bound=1.5,
        sense="at_most",
    )


@asynccontextmanager
async def _group(database: Database) -> AsyncIterator[Group[Row, None]]:
    async def statement(rows: Sequence[Row]) -> list[None]:
        await database.write(INSERT, [row[0] for row in rows], [row[1] for row in rows])
        return [None] * len(rows)

    group: Group[Row, None] = Group("bench", statement, metrics=database.metrics)
    yield group
    await group.close()
