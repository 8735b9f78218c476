"""Reads rows of one log in complete groups, and filters them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import FeedExpired
from relevo.feed.reading.filters import sql_of
from relevo.kernel.postgres import catalog, pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from relevo.feed.model import Mode
    from relevo.feed.reading.filters import Filter
    from relevo.kernel.postgres import Database, Transaction
    from relevo.store.ranges import Interval

SQL = catalog.load("relevo.feed")
FIRST: Final[dict[tuple[Mode, bool], str]] = {
    ("latest", False): SQL.read_latest,
    ("latest", True): SQL.read_latest_alone,
    ("all_versions", False): SQL.read_versions,
    ("all_versions", True): SQL.read_versions_alone,
}
"""The statements, by mode and whether the range has no ancestors."""
BODY: Final = itemgetter(6)
"""The body of a row: found by number, for there are very many rows."""
SCAN_ROWS: Final = 1_000
"""Rows that one statement looks at for a reader with a filter."""
SCANS_MAX: Final = 20
"""Statements that a reader with a filter runs before it reports its position."""


class Scan:
    """Reads the rows of one log in complete groups."""

    def __init__(
        self, connection: Database | Transaction, name: str, mode: Mode, lineage: list[int],
        interval: Interval, wanted: Filter | None, *, frugal: bool = False,
    ) -> None:  # fmt: skip
        self._frugal = frugal
        latest = mode == "latest"
        self._connection = connection
        self._name = name
        self._lineage = lineage
        self._interval = interval
        self._versions = not latest
        self._filtered = wanted is not None
        self._mark = "body" if latest else "operation"
        first = FIRST[mode, len(lineage) == 1]
        self._first = sql_of(first, wanted, mode, 6)
        self._rest = sql_of(
            SQL.read_latest_rest if latest else SQL.read_versions_rest, wanted, mode, 6
        )

    async def read(
        self, after: int, rows_max: int, bytes_max: int
    ) -> tuple[Sequence[asyncpg.Record], int, bool]:
        """Return the next rows, up to where that is, and whether there are probably more."""
        if self._filtered:
            return await self._wanted_groups(after, rows_max, bytes_max)
        rows, more = await self._groups(after, rows_max, bytes_max)
        return rows, rows[-1]["lsn"] if rows else after, more

    async def _groups(
        self, after: int, rows_max: int, bytes_max: int
    ) -> tuple[Sequence[asyncpg.Record], bool]:
        sql, *arguments = self._first
        low, high = self._interval.low, self._interval.high
        statement = (sql, self._lineage, after, low, high, rows_max + 1, *arguments)
        if self._frugal:
            rows, full = await self._few_at_a_time(statement, rows_max, bytes_max)
        else:
            rows = await self._connection.fetch(*statement)
            full = len(rows) > rows_max
            if full and rows[-1]["lsn"] == rows[-2]["lsn"]:
                rows += await self._rest_of_group(rows[-1])
            elif full:
                rows.pop()
        if self._versions:
            await self._check_not_trimmed(after)
        kept = _within(rows, bytes_max)
        return kept, full or len(kept) < len(rows)

    async def _few_at_a_time(
        self, statement: tuple[Any, ...], rows_max: int, bytes_max: int
    ) -> tuple[list[asyncpg.Record], bool]:
        """Return complete groups of about the allowed bytes, and whether there are more."""
        found = await pages.fetch_page(
            self._connection, *statement, rows=rows_max, bytes_max=bytes_max
        )
        rows = found.items
        if not found.more:
            return rows, False
        whole = [row for row in rows if row["lsn"] != rows[-1]["lsn"]]
        if whole and len(rows) < rows_max:
            return whole, True  # the rest of the last group may be large
        return [*rows, *await self._rest_of_group(rows[-1])], True

    async def _rest_of_group(self, last: asyncpg.Record) -> list[asyncpg.Record]:
        sql, *arguments = self._rest
        low, high = self._interval.low, self._interval.high
        return await self._connection.fetch(
            sql, self._lineage, last["lsn"], low, high, last["ordinal"], *arguments
        )

    async def _wanted_groups(
        self, after: int, rows_max: int, bytes_max: int
    ) -> tuple[Sequence[asyncpg.Record], int, bool]:
        """Return the next rows that the filter lets through, how far that was, and whether more.

        Reads a bounded number of rows, so that the caller can store its progress in between.
        """
        position, more = after, True
        for _ in range(SCANS_MAX):
            rows, more = await self._groups(position, max(rows_max, SCAN_ROWS), bytes_max)
            position = rows[-1]["lsn"] if rows else position
            found = [row for row in rows if row[self._mark] is not None]
            kept = _first_groups(found, rows_max)
            if len(kept) < len(found):
                return kept, kept[-1]["lsn"], True
            if kept or not more:
                return kept, position, more
        return [], position, more

    async def _check_not_trimmed(self, after: int) -> None:
        """Refuse a position that trimming has passed, also while a reader is under way.

        Asked after the read: what was trimmed before it shows here, and what is trimmed later was
        read.
        """
        oldest = await self._connection.fetchval(SQL.trimmed, self._lineage)
        if after < oldest:
            raise FeedExpired(
                f"container {self._name!r} was trimmed past position {after} meanwhile; the oldest"
                f" that can be read from is {oldest}",
                oldest=oldest,
            )


def _within(rows: Sequence[asyncpg.Record], max_bytes: int) -> Sequence[asyncpg.Record]:
    """Cut at the end of the last group that fits; the first group always does."""
    if sum(map(len, filter(None, map(BODY, rows)))) <= max_bytes:
        return rows  # usually; then the ends of groups need no search
    sizes = [len(BODY(row) or "") for row in rows]
    size, end = 0, 0
    for index, row in enumerate(rows):
        size += sizes[index]
        last_of_group = index + 1 == len(rows) or rows[index + 1]["lsn"] != row["lsn"]
        if size > max_bytes and end:
            break
        if last_of_group:
            end = index + 1
    return rows[:end]


def _first_groups(rows: Sequence[asyncpg.Record], count: int) -> Sequence[asyncpg.Record]:
    """Return `count` rows, then to the end of the group."""
    end = count
    while 0 < end < len(rows) and rows[end]["lsn"] == rows[end - 1]["lsn"]:
        end += 1
    return rows[:end]
