"""The two ways in which a transaction writes items.

Stamped writes take the stamp lock of their range, get their LSN under it, and the commit follows;
they never wait for an item. Deferred writes wait for items that others hold and get their LSN when
their transaction commits, so a transaction of any length may contain them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import asyncpg
from msgspec import structs

from relevo.store.items import Row, Stored
from relevo.store.lifecycle import SQL, STALE
from relevo.store.waiting import Busy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relevo.errors import RelevoError
    from relevo.kernel.postgres import Transaction
    from relevo.store.items import Key
    from relevo.store.opened import OpenContainer
    from relevo.store.ranges import RangeMap


class Refused(Exception):
    """A step could not be done, so nothing was."""

    def __init__(self, index: int, error: RelevoError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class Writes(Protocol):
    """Writes different items; returns what it left, by the numbers of their steps."""

    async def write(self, rows: dict[int, Row]) -> dict[int, Stored]:
        """Write them all, or raise `Refused`."""


class StampedWrites:
    """Writes that get their LSN at once; `Busy` if another transaction holds an item."""

    def __init__(
        self,
        opened: OpenContainer,
        ranges: RangeMap,
        execute: Callable[..., Awaitable[list[asyncpg.Record]]],
    ) -> None:
        self._opened = opened
        self._ranges = ranges
        self._execute = execute
        self._lsn: int | None = None
        self._count = 0

    async def write(self, rows: dict[int, Row]) -> dict[int, Stored]:
        """Write them all; all calls share an LSN."""
        first = (self._lsn, 2 * self._count)
        records = await self._execute(
            SQL.write_items,
            *self._opened.arguments(self._ranges, list(rows.values()), [1] * len(rows), first),
        )
        done = _results(self._opened, rows, records)
        self._lsn, self._count = records[0]["lsn"], self._count + len(rows)
        return done


class DeferredWrites:
    """Writes whose LSN is 0 until `stamped`, or until the commit of their transaction."""

    def __init__(self, opened: OpenContainer, tx: Transaction) -> None:
        self._opened = opened
        self.tx = tx

    async def write(self, rows: dict[int, Row]) -> dict[int, Stored]:
        """Write them all; waits for items that other transactions hold."""
        given = list(rows.values())
        try:
            records = await self.tx.fetch(
                SQL.put_rows,
                self._opened.info.id,
                [row.kind for row in given],
                [row.key.pk for row in given],
                [row.key.id for row in given],
                [row.key.epk for row in given],
                [row.text for row in given],
                [row.condition for row in given],
                [row.ttl for row in given],
            )
        except asyncpg.PostgresError as error:
            if error.sqlstate in STALE:
                await self._opened.refresh()  # raises that the container was dropped
            raise
        return _results(self._opened, rows, records)

    async def stamped(self, done: list[Stored]) -> list[Stored]:
        """End the writes of the transaction, all in one range; return them with their LSN."""
        stamps = await self.tx.fetch(SQL.stamp_writes)
        if not stamps:  # there were only reads
            return done
        lsn, ts = stamps[0]["lsn"], stamps[0]["ts"]
        return [one if one.lsn else structs.replace(one, lsn=lsn, ts=ts) for one in done]


async def wait_apart(
    opened: OpenContainer,
    work: Callable[[DeferredWrites], Awaitable[list[Stored]]],
    seconds: float,
) -> list[Stored]:
    """Write in a transaction of its own that waits for items; `Busy` after so many seconds."""

    async def transaction(tx: Transaction) -> list[Stored]:
        try:
            await tx.execute(SQL.wait_for_locks, f"{seconds * 1000:.0f}")
            writes = DeferredWrites(opened, tx)
            return await writes.stamped(await work(writes))
        except asyncpg.LockNotAvailableError as error:
            raise Busy from error

    return await opened.database.run(transaction)


def stored(key: Key, record: asyncpg.Record) -> Stored:
    """Return the version of an item that a row shows."""
    return Stored(
        key=key,
        text=record["body"],
        lsn=record["lsn"],
        ordinal=record["ordinal"],
        ts=record["ts"],
    )


def _results(
    opened: OpenContainer, rows: dict[int, Row], records: Sequence[asyncpg.Record]
) -> dict[int, Stored]:
    if any(record["outcome"] == "busy" for record in records):
        raise Busy
    done = {}
    for (index, row), record in zip(rows.items(), records, strict=True):
        result = opened.result(row, record)
        if isinstance(result, Stored):
            done[index] = result
        elif record["outcome"] != "skipped":  # for the sake of another one, which is named
            raise Refused(index, result)
    return done
