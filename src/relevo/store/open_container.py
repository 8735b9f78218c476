"""A container in use: its range map, and the groups that its reads and writes ride in.

Groups are collected per quarter of the hash space, so that one statement holds the stamp locks of
few ranges. If a range was split meanwhile, PostgreSQL refuses the statement; Relevo then reads the
range map again and repeats it, so splits need no announcement. A statement leaves out items that
another transaction holds; their writes wait apart (`LockWaits`).
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

import asyncpg

from relevo import limits
from relevo.errors import (
    ConditionNotMet,
    ContainerRecreated,
    InternalError,
    ItemExists,
    NotFound,
    RelevoError,
    Unavailable,
)
from relevo.kernel.postgres.grouping import Group
from relevo.store import lifecycle
from relevo.store.items import ItemWrite, StoredItem
from relevo.store.lifecycle import ATTEMPTS_MAX, SQL, STALE
from relevo.store.ranges import HASH_TOP
from relevo.store.writes import StepRefused, stored, wait_apart

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence

    from relevo.kernel.postgres import Database, Transaction, Wakeups
    from relevo.store.items import ItemKey
    from relevo.store.lifecycle import FoundContainer
    from relevo.store.ranges import RangeMap
    from relevo.store.writes import DeferredWrites, LockWaits

R = TypeVar("R")
LANES: Final = 4
READ_CALLS_MAX: Final = 100
GROUP_BYTES_MAX: Final = 8 * limits.MIB
"""Bytes of bodies that one statement carries at most."""
Written = StoredItem | asyncio.Task[StoredItem]
"""The result of a grouped write: a version, or a task if another transaction holds the item."""


class OpenContainer:
    """One life of a container, as this process knows it; shared by all handles of its name."""

    def __init__(
        self, database: Database, wakeups: Wakeups, found: FoundContainer, room: LockWaits
    ) -> None:
        self.info = found.info
        self.ranges = found.ranges
        self.gone = False
        """Set when it was dropped or closed; the next call looks the container up again."""
        self.database = database
        self.room = room
        self._queues = WriteQueues()
        self._wakeups = wakeups
        lanes = min(LANES, len(found.ranges.open))
        self._writes: Group[ItemWrite, Written] = Group(
            "items.write",
            self._write_group,
            key=lambda row: row.key,
            lane=lambda row: int(row.key.epk[:2], 16) * lanes // HASH_TOP,
            lanes=lanes,
            metrics=database.metrics,
        )
        self._reads: Group[ItemKey, StoredItem] = Group(
            "items.read",
            self._read_group,
            lane=lambda key: key.epk,
            lanes=2,
            calls_max=READ_CALLS_MAX,
            metrics=database.metrics,
        )

    async def write(self, row: ItemWrite) -> StoredItem:
        """Write one item, in a group with concurrent writes."""
        done = await self._writes.call(row)
        return done if isinstance(done, StoredItem) else await done

    async def read(self, key: ItemKey, tx: Transaction | None = None) -> StoredItem:
        """Return an item as it is, or as a transaction of the caller sees it."""
        if tx is None:
            return await self._reads.call(key)
        [found] = await self._read_by(tx, [key])
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        """Finish accepted calls, except those that wait for other transactions."""
        self.gone = True
        await self._writes.close()
        await self._reads.close()
        await self._queues.end()

    async def refresh(self) -> None:
        """Read the range map again; raise if the container is no longer the one that was opened."""
        name = self.info.name
        found = await lifecycle.find(self.database, name)
        if found is not None and found.info.id == self.info.id:
            self.ranges = found.ranges
            return
        self.gone = True
        if found is None:
            raise NotFound(f"container {name!r} was dropped; nothing was changed by this call")
        raise ContainerRecreated(
            f"container {name!r} was dropped and created again; nothing was changed by this call,"
            " and the next one uses the new container"
        )

    async def check(self) -> None:
        """Raise if the container was dropped meanwhile."""
        if not await self.database.fetchval(SQL.container_exists, self.info.id):
            await self.refresh()

    async def with_ranges(self, work: Callable[[RangeMap], Awaitable[R]]) -> R:
        """Do work with the range map; repeat it with a fresh one if the map was stale."""
        for _ in range(ATTEMPTS_MAX):
            ranges = self.ranges
            try:
                return await work(ranges)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in STALE:
                    raise
            if self.ranges is ranges:  # else another task has just read it
                await self.refresh()
        raise Unavailable(f"the ranges of container {self.info.name!r} kept being split; try again")

    def wake(self) -> None:
        """Wake readers of the feed after a commit."""
        self._wakeups.send(f"feed:{self.info.id}")

    async def _write_group(self, rows: Sequence[ItemWrite]) -> list[Written | Exception]:
        held = {row.key for row in rows if row.key in self._queues}
        free = [row for row in rows if row.key not in held]
        done = iter(await self._write_parts(free))
        # Not before the others are written: if that raises, the group is sent again in halves.
        return [self._apart(row) if row.key in held else next(done) for row in rows]

    async def _write_parts(self, rows: Sequence[ItemWrite]) -> list[Written | Exception]:
        parts = list(_by_bytes(rows))
        if len(parts) == 1:
            return await self._write_part(rows)
        # Each part commits separately: after the first, a failure concerns one part only.
        return [result for part in parts for result in await self._write_more(part)]

    async def _write_more(self, rows: Sequence[ItemWrite]) -> list[Written | Exception]:
        """Write rows of a group whose other rows are committed: a failure concerns these only."""
        try:
            return await self._write_part(rows)
        except Exception as error:
            return [copy.copy(error) for _ in rows]

    async def _write_part(self, rows: Sequence[ItemWrite]) -> list[Written | Exception]:
        async def send(ranges: RangeMap) -> list[asyncpg.Record]:
            calls = range(1, len(rows) + 1)
            return await self.database.write(SQL.write_items, *self.arguments(ranges, rows, calls))

        try:
            records = await self.with_ranges(send)
        except (NotFound, ContainerRecreated) as error:
            return [copy.copy(error) for _ in rows]
        results = [self._written(row, one) for row, one in zip(rows, records, strict=True)]
        if any(isinstance(result, StoredItem) for result in results):
            self.wake()
        untried = [row for row, result in zip(rows, results, strict=True) if result is None]
        again = iter(await self._write_more(untried) if untried else ())
        return [next(again) if result is None else result for result in results]

    def _written(self, row: ItemWrite, record: asyncpg.Record) -> Written | Exception | None:
        """Return the result of a row; None if it has to be sent again."""
        match record["outcome"]:
            case "busy":
                return self._apart(row)
            case "untried":
                return None
            case _:
                return self.result(row, record)

    def _apart(self, row: ItemWrite) -> asyncio.Task[StoredItem]:
        """Write an item that another transaction holds, behind earlier waiting writes of it."""

        async def work(writes: DeferredWrites) -> list[StoredItem]:
            return [(await writes.write({0: row}))[0]]

        async def write() -> StoredItem:
            try:
                [done] = await self.room.wait(
                    self.named(row.key), lambda seconds: wait_apart(self, work, seconds)
                )
            except StepRefused as refused:
                raise refused.error from None
            self.wake()
            return done

        return self._queues.join(row.key, write)

    async def _read_group(self, keys: Sequence[ItemKey]) -> list[StoredItem | Exception]:
        return await self._read_by(self.database, keys)

    async def _read_by(
        self, reader: Database | Transaction, keys: Sequence[ItemKey]
    ) -> list[StoredItem | Exception]:
        records = await reader.fetch(
            SQL.read_items, self.info.id, [key.pk for key in keys], [key.id for key in keys]
        )
        if not records:
            try:
                await self.refresh()
            except (NotFound, ContainerRecreated) as error:
                return [copy.copy(error) for _ in keys]
        return [
            self.missing(key) if record["body"] is None else stored(key, record)
            for key, record in zip(keys, records, strict=True)
        ]

    def arguments(
        self,
        ranges: RangeMap,
        rows: Sequence[ItemWrite],
        calls: Sequence[int],
        first: tuple[int | None, int] = (None, 0),
    ) -> tuple[Any, ...]:
        """Return the arguments of `write_items`; `first` goes on with an LSN at an ordinal."""
        return (
            self.info.id,
            calls,
            [row.kind for row in rows],
            [row.key.pk for row in rows],
            [row.key.id for row in rows],
            [row.key.epk for row in rows],
            [ranges.at(row.key.epk).id for row in rows],
            [row.text for row in rows],
            [row.condition for row in rows],
            [row.ttl for row in rows],
            *first,
        )

    def result(self, row: ItemWrite, record: asyncpg.Record) -> StoredItem | RelevoError:
        """Return the result of a write: a version, or the error."""
        match record["outcome"]:
            case "created" | "replaced" | "deleted" as outcome:
                return StoredItem(
                    key=row.key,
                    text=row.text,
                    lsn=record["lsn"],
                    ordinal=record["ordinal"],
                    ts=record["ts"],
                    created=outcome == "created",
                )
            case "exists":
                return ItemExists(
                    f"{self.named(row.key)} exists; replace or upsert it, or choose another id"
                )
            case "missing":
                return self.missing(row.key)
            case "mismatch":
                return self.mismatch(row.key, row.condition)
            case other:
                return InternalError(f"{self.named(row.key)}: unexpected outcome {other!r}")

    def missing(self, key: ItemKey) -> NotFound:
        """Return the error for an item that does not exist."""
        return NotFound(f"{self.named(key)} does not exist")

    def mismatch(self, key: ItemKey, condition: str | None) -> ConditionNotMet:
        """Return the error for an item that has another etag."""
        return ConditionNotMet(
            f"{self.named(key)} does not have the etag {condition}; read it again and retry",
            pointer="if_match",
        )

    def named(self, key: ItemKey) -> str:
        """Return how errors name an item."""
        return f"item {key.id!r} with partition key {key.pk} in container {self.info.name!r}"


class WriteQueues:
    """Writes of this process that wait for locked items: one queue per item, in order."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Task[Any]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._last

    def join(self, key: Hashable, write: Callable[[], Awaitable[R]]) -> asyncio.Task[R]:
        """Write after all earlier writes of this item."""
        before = self._last.get(key)

        async def turn() -> R:
            if before is not None:
                await asyncio.wait([before])
            return await write()

        task = asyncio.get_running_loop().create_task(turn(), name="write of a locked item")
        self._last[key] = task
        task.add_done_callback(lambda done: self._leave(key, done))
        return task

    async def end(self) -> None:
        """Wait until every queue is empty."""
        while self._last:
            await asyncio.wait(list(self._last.values()))
            await asyncio.sleep(0)

    def _leave(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._last.get(key) is task:
            del self._last[key]
        if not task.cancelled():
            task.exception()  # retrieved, even if the caller was canceled


def _by_bytes(rows: Sequence[ItemWrite]) -> Iterator[Sequence[ItemWrite]]:
    """Cut rows so that the bodies of each part stay within bounds; none, if there are no rows."""
    if not rows:
        return
    start, size = 0, 0
    for index, row in enumerate(rows):
        length = len(row.text or "")
        if size + length > GROUP_BYTES_MAX and index > start:
            yield rows[start:index]
            start, size = index, 0
        size += length
    yield rows[start:]
