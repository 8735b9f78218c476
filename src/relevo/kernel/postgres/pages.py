"""Reading a part of a list without holding more of it than a page may have.

A statement says how many rows it gives at most, but not how large they are: rows of one list may
have a hundred bytes or many megabytes. So rows are fetched a few at a time, until they have the
bytes of a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from relevo.kernel.pages import Fetched, fitting
from relevo.kernel.postgres.failures import Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from relevo.kernel.postgres.database import Database

STEP_ROWS_MIN: Final = 4
STEP_ROWS_MAX: Final = 16
"""Rows that are fetched at once: so many more than a page needs may be in memory."""
CELL_BYTES: Final = 16
"""The bytes counted for a value that is no text."""


async def fetch_page(
    connection: Database | asyncpg.Connection, sql: str, *args: Any, rows: int, bytes_max: int
) -> Fetched[asyncpg.Record]:
    """As `Database.fetch_page`, also within a caller's transaction."""
    if hasattr(connection, "fetch_page"):
        database = cast("Database", connection)
        return await database.fetch_page(sql, *args, rows=rows, bytes_max=bytes_max)
    return await read(connection, (sql, *args), rows=rows, bytes_max=bytes_max)


async def read(
    connection: asyncpg.Connection,
    statement: tuple[Any, ...],
    *,
    rows: int,
    bytes_max: int,
    between: Callable[[], None] = lambda: None,
) -> Fetched[asyncpg.Record]:
    """Return the first rows of a statement, inside a transaction.

    At most `rows`, and no more than fit into `bytes_max`, but for the first. The statement has to
    give one row more than `rows`, if there is one. `between` is called between fetches and may
    raise.
    """
    sql, *arguments = statement
    found: list[asyncpg.Record] = []
    sizes: list[int] = []
    size, step = 0, STEP_ROWS_MIN
    try:
        # Without a name: behind PgBouncer, statements of others may have ours.
        prepared = await connection.prepare(sql, name="")
        cursor = await prepared.cursor(*arguments)
        # One row beyond the page says that there are more.
        while len(found) <= rows and (size <= bytes_max or len(found) < 2):
            wanted = min(step, rows + 1 - len(found))
            part = await cursor.fetch(wanted)
            found += part
            sizes += map(row_bytes, part)
            size = sum(sizes)
            if len(part) < wanted:
                break
            step = min(2 * step, STEP_ROWS_MAX)
            between()
    except TimeoutError as error:
        raise Unanswered("the statement was not answered in its time") from error
    kept = min(rows, fitting(sizes, bytes_max))
    return Fetched(found[:kept], len(found) > kept)


def row_bytes(row: asyncpg.Record) -> int:
    """Return about how many bytes a row has."""
    return sum(map(_bytes, row))


def _bytes(value: Any) -> int:
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode())
        case bytes():
            return len(value)
        case list():
            return sum(map(_bytes, value))
        case _:
            return CELL_BYTES
