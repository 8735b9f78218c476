"""The two ways in which a transaction writes items.

Stamped writes take the stamp lock of their range, get their LSN under it, and the commit follows;
they never wait for an item. Deferred writes wait for items that others hold and get their LSN when
their transaction commits, so a transaction of any length may contain them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import asyncpg
from msgspec import structs

from relevo import limits
from relevo.errors import Closed, ItemLocked
from relevo.store.items import ItemWrite, StoredItem
from relevo.store.lifecycle import SQL, STALE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from relevo.errors import RelevoError
    from relevo.kernel.postgres import Transaction
    from relevo.store.items import ItemKey
    from relevo.store.open_container import OpenContainer
    from relevo.store.ranges import RangeMap

R = TypeVar("R")
SLICE_SECONDS_MAX: Final = 2.0
SLICE_SECONDS_MIN: Final = 0.05
"""How long one write waits in the database before the next one has its turn."""


class StepRefused(Exception):
    """A step could not be done, so nothing was written."""

    def __init__(self, index: int, error: RelevoError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


class ItemBusy(Exception):
    """Another transaction holds an item that a write needs; the write changed nothing."""


class Writes(Protocol):
    """Writes different items; returns the new versions by the numbers of their steps."""

    async def write(self, rows: dict[int, ItemWrite]) -> dict[int, StoredItem]:
        """Write them all, or raise `StepRefused`."""


class StampedWrites:
    """Writes that get their LSN at once; `ItemBusy` if another transaction holds an item."""

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

    async def write(self, rows: dict[int, ItemWrite]) -> dict[int, StoredItem]:
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

    async def write(self, rows: dict[int, ItemWrite]) -> dict[int, StoredItem]:
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

    async def stamped(self, done: list[StoredItem]) -> list[StoredItem]:
        """End the writes of the transaction, all in one range; return them with their LSN."""
        stamps = await self.tx.fetch(SQL.stamp_writes)
        if not stamps:  # there were only reads
            return done
        lsn, ts = stamps[0]["lsn"], stamps[0]["ts"]
        return [one if one.lsn else structs.replace(one, lsn=lsn, ts=ts) for one in done]


class LockWaits:
    """Lets writes wait for items that other transactions hold; shared by a store's containers.

    A grouped statement never waits for an item: it leaves out calls whose items another transaction
    holds. Each of those calls then waits in a transaction of its own. Few of them wait in the
    database at a time, and each only for a time slice. So an idle transaction takes neither the
    connections nor the groups of callers that write other items.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(limits.ITEM_WAITERS_MAX)
        self._waiting = 0
        self._closing = False

    async def wait(self, name: str, work: Callable[[float], Awaitable[R]]) -> R:
        """Repeat work that raises `ItemBusy` after the given seconds, until it succeeds.

        `name` names the item in errors. Raises `ItemLocked` if it stays busy for too long.
        """
        started = time.monotonic()
        self._waiting += 1
        try:
            while not self._closing:
                async with self._slots:
                    try:
                        return await work(self._slice())
                    except ItemBusy as busy:
                        waited = time.monotonic() - started
                        if waited >= limits.ITEM_WAIT_SECONDS_MAX:
                            raise _locked(name, waited) from busy.__cause__
        finally:
            self._waiting -= 1
        raise Closed(f"the store was closed while another transaction held {name}")

    def close(self) -> None:
        """Let waiting writes finish their present turn, and start no other."""
        self._closing = True

    def _slice(self) -> float:
        fair = SLICE_SECONDS_MAX * limits.ITEM_WAITERS_MAX / self._waiting
        return max(SLICE_SECONDS_MIN, min(SLICE_SECONDS_MAX, fair))


async def wait_apart(
    opened: OpenContainer,
    work: Callable[[DeferredWrites], Awaitable[list[StoredItem]]],
    seconds: float,
) -> list[StoredItem]:
    """Write in a separate transaction that waits for items; `ItemBusy` after `seconds`."""

    async def transaction(tx: Transaction) -> list[StoredItem]:
        try:
            await tx.execute(SQL.wait_for_locks, f"{seconds * 1000:.0f}")
            writes = DeferredWrites(opened, tx)
            return await writes.stamped(await work(writes))
        except asyncpg.LockNotAvailableError as error:
            raise ItemBusy from error

    return await opened.database.run(transaction)


def stored(key: ItemKey, record: asyncpg.Record) -> StoredItem:
    """Return the version of an item that a row shows."""
    return StoredItem(
        key=key,
        text=record["body"],
        lsn=record["lsn"],
        ordinal=record["ordinal"],
        ts=record["ts"],
    )


def _results(
    opened: OpenContainer, rows: dict[int, ItemWrite], records: Sequence[asyncpg.Record]
) -> dict[int, StoredItem]:
    if any(record["outcome"] == "busy" for record in records):
        raise ItemBusy
    done = {}
    for (index, row), record in zip(rows.items(), records, strict=True):
        result = opened.result(row, record)
        if isinstance(result, StoredItem):
            done[index] = result
        elif record["outcome"] != "skipped":  # another row was refused, and is reported
            raise StepRefused(index, result)
    return done


def _locked(name: str, waited: float) -> ItemLocked:
    return ItemLocked(
        f"another transaction has held {name} for {waited:.0f} seconds; nothing was changed. Commit"
        " or end that transaction (pg_stat_activity shows it), and try again"
    )
