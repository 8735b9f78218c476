"""What single calls that ride in groups cost, beside asyncpg used by hand."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bench import Figure
from bench.quiet import Turns, take_turns
from relevo import settings
from relevo.kernel.postgres.database import Database
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import asyncpg

HOW: Final = """
A row is a uuid (primary key) and 100 bytes. Grouped: so many callers each await one `Group.call`
after the other. Beside them one asyncpg connection inserts the same rows with `insert … select
from unnest` in batches of 500, or of as many as there are callers if those are fewer. Idle: one
call at a time, beside `execute` of one row. Embedded PostgreSQL, fsync on, all in one process on
asyncio's own event loop. The sides take turns; figures are medians of the measurements during
which others used at most a tenth of the machine. With fewer than three quiet rounds all count, and
a missed figure says little: callers use a second core while the server works, the bare loop not.
"""

TABLE: Final = "create table bench_row (id uuid primary key, body bytea not null)"
INSERT: Final = "insert into bench_row (id, body) select * from unnest($1::uuid[], $2::bytea[])"
INSERT_ONE: Final = "insert into bench_row (id, body) values ($1, $2)"

ROWS: Final = 100_000
STATEMENTS: Final = 500
"""So many are enough where they carry few rows each."""
BATCH: Final = 500
IDLE_CALLS: Final = 300
CALLERS: Final = (10, 100, 1_000, 2_000, 10_000)
BATCHES: Final = (10, 100, BATCH)

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
                return await _measure(database, bare)
            finally:
                await bare.close()


async def _measure(database: Database, bare: asyncpg.Connection) -> list[Figure]:
    rows = _rows(ROWS)

    async def side(measure: Callable[[], Awaitable[float]]) -> float:
        await bare.execute("truncate bench_row")
        gc.collect()
        return await measure()

    sides: dict[str, Callable[[], Awaitable[float]]] = {
        **{f"bare {n}": partial(_bare_rate, bare, rows, n) for n in BATCHES},
        **{f"grouped {n}": partial(_grouped_rate, database, rows, n) for n in CALLERS},
        "bare idle": partial(_bare_milliseconds, bare, rows),
        "grouped idle": partial(_grouped_milliseconds, database, rows),
    }
    server = database.endpoint.embedded
    turns = await take_turns(
        {name: partial(side, measure) for name, measure in sides.items()},
        server.pid if server else None,
    )
    return _figures(turns)


def _figures(turns: Turns) -> list[Figure]:
    rates = [
        Figure(
            name=f"{callers:,} callers",
            measured=turns.medians[f"grouped {callers}"],
            unit="rows/s",
            beside=turns.medians[f"bare {min(callers, BATCH)}"],
            bound=0.8 if callers == 2_000 else None,
        )
        for callers in CALLERS
    ]
    idle = Figure(
        name="one call, idle",
        measured=turns.medians["grouped idle"],
        unit="ms",
        beside=turns.medians["bare idle"],
        bound=1.5,
        sense="at_most",
    )
    quiet = Figure(name="quiet rounds", measured=turns.quiet, unit=f"of {turns.rounds}")
    return [*rates, idle, quiet]


def _rows(count: int) -> list[Row]:
    entropy, body = os.urandom(16 * count), os.urandom(100)
    return [(UUID(bytes=entropy[at : at + 16]), body) for at in range(0, 16 * count, 16)]


async def _bare_rate(connection: asyncpg.Connection, rows: Sequence[Row], batch: int) -> float:
    rows = rows[: STATEMENTS * batch]
    started = time.perf_counter()
    for at in range(0, len(rows), batch):
        some = rows[at : at + batch]
        await connection.execute(INSERT, [row[0] for row in some], [row[1] for row in some])
    return len(rows) / (time.perf_counter() - started)


async def _grouped_rate(database: Database, rows: Sequence[Row], callers: int) -> float:
    rows = rows[: STATEMENTS * callers]
    async with _group(database) as group:
        left = iter(rows)

        async def caller() -> None:
            for row in left:
                await group.call(row)

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        seconds = time.perf_counter() - started
    assert await database.fetchval("select count(*) from bench_row") == len(rows)
    return len(rows) / seconds


async def _bare_milliseconds(connection: asyncpg.Connection, rows: Sequence[Row]) -> float:
    started = time.perf_counter()
    for row in rows[:IDLE_CALLS]:
        await connection.execute(INSERT_ONE, *row)
    return (time.perf_counter() - started) / IDLE_CALLS * 1000


async def _grouped_milliseconds(database: Database, rows: Sequence[Row]) -> float:
    async with _group(database) as group:
        started = time.perf_counter()
        for row in rows[:IDLE_CALLS]:
            await group.call(row)
        return (time.perf_counter() - started) / IDLE_CALLS * 1000


@asynccontextmanager
async def _group(database: Database) -> AsyncIterator[Group[Row, None]]:
    async def statement(rows: Sequence[Row]) -> list[None]:
        await database.write(INSERT, [row[0] for row in rows], [row[1] for row in rows])
        return [None] * len(rows)

    group: Group[Row, None] = Group("bench", statement, metrics=database.metrics)
    yield group
    await group.close()
