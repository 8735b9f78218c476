"""Writes of a worker to its lease; every statement carries the fence."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct

from relevo.errors import Closed, DatabaseUnavailable, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.feed.processing.isolation import Troubles
from relevo.feed.processing.ledger import Done
from relevo.kernel import error_text
from relevo.kernel.leases import require
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from relevo.feed.model import Change
    from relevo.feed.processing.ledger import LedgerSnapshot
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")
TEXT_MAX = 8_000
"""Characters of an error's message or traceback that are kept."""
FAILING_MAX = 2_000
"""Characters that a lease keeps of the error with which its batch failed last."""


class StoredLease(Struct, frozen=True, kw_only=True):
    """The stored state of a lease, as a worker finds it."""

    interval: Interval
    positions: dict[int, int]
    done: tuple[Done, ...]
    crashes: int
    troubles: Troubles


class FailureCause(Struct, frozen=True, kw_only=True):
    """Why a change becomes a dead letter."""

    reason: Literal["failed", "crash"]
    error_type: str
    message: str
    traceback: str = ""
    attempts: int

    @classmethod
    def of(cls, error: BaseException, attempts: int) -> FailureCause:
        """A handler raised."""
        return cls(
            reason="failed", error_type=error_text.fit(type(error).__name__, TEXT_MAX),
            message=error_text.message(error, TEXT_MAX),
            traceback=error_text.trace(error, TEXT_MAX), attempts=attempts,
        )  # fmt: skip


class Checkpoint(Struct, frozen=True):
    """The position of a lease and its owner's fence, as the statement takes them."""

    lease_id: int
    epoch: int
    owner: UUID
    position: str
    last: datetime | None
    isolation: str | None
    relaxed: bool
    """Whether a server crash may lose it; used if it holds for the complete statement."""


class Checkpoints:
    """Stores positions; concurrent calls of many leases share one statement."""

    def __init__(self, database: Database, unit: str) -> None:
        self._database = database
        self._unit = unit
        self._group: Group[Checkpoint, bool] = Group(
            "feed checkpoint", self._store_all, metrics=database.metrics
        )

    async def store(self, one: Checkpoint) -> bool:
        """Return whether it is stored. If not, the lease was lost or its row is locked.

        A group never waits for the transaction of another lease; the caller tries again alone.
        """
        return await self._group.call(one)

    async def close(self) -> None:
        """Wait for calls under way."""
        await self._group.close()

    async def _store_all(self, entries: Sequence[Checkpoint]) -> list[bool | Exception]:
        self._database.metrics.count_lease_statement("checkpoint", self._unit)
        rows = await self._database.write(
            SQL.checkpoints,
            [entry.lease_id for entry in entries],
            [entry.epoch for entry in entries],
            [entry.owner for entry in entries],
            [entry.position for entry in entries],
            [entry.last for entry in entries],
            [entry.isolation for entry in entries],
            all(entry.relaxed for entry in entries),
            idempotent=True,
        )
        stored = {row["lease_id"] for row in rows}
        return [entry.lease_id in stored for entry in entries]


class LeaseJournal:
    """Reads and writes one lease in the name of its owner."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        incarnation: UUID,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._database = database
        self._checkpoints = checkpoints
        self._lease = lease
        self._fence = (lease.fence.lease_id, lease.epoch, incarnation)

    async def open(self) -> StoredLease:
        """Read the state that the last owner left; counts a loss without release first."""
        if not self._lease.clean:
            await self._write(SQL.note_loss)
        try:
            rows = await self._database.fetch(SQL.feed_lease, self._lease.fence.lease_id)
        except (DatabaseUnavailable, asyncpg.PostgresError) as error:
            raise _store_error(error) from error
        if not rows:
            raise self._lost()
        row, isolation = rows[0], rows[0]["isolation"]
        return StoredLease(
            interval=Interval(row["epk_min"], row["epk_max"]),
            positions=msgspec.json.decode(row["position"], type=dict[int, int]),
            done=await self._done() if row["has_done"] else (),
            crashes=row["crashes"],
            troubles=msgspec.json.decode(isolation or "{}", type=Troubles),
        )

    async def settle(self) -> None:
        """Wait until no transaction of this epoch runs any more, such as of calls cut off."""
        await self._write(SQL.settle_lease)

    async def _done(self) -> tuple[Done, ...]:
        try:
            rows = await self._database.fetch(SQL.list_done, self._lease.fence.lease_id)
        except (DatabaseUnavailable, asyncpg.PostgresError) as error:
            raise _store_error(error) from error
        return tuple((row["range_id"], row["lsn"], row["ordinal"]) for row in rows)

    async def checkpoint(
        self,
        snapshot: LedgerSnapshot,
        last: datetime | None,
        troubles: Troubles | None,
        tx: Transaction | None = None,
        *,
        relaxed: bool = False,
    ) -> None:
        """Move the position, in a transaction of the caller if one is given."""
        position, isolation = _text(snapshot.positions), _json(troubles)
        arguments: tuple[Any, ...] = (position, last, isolation)
        sql = SQL.checkpoint
        if snapshot.done or snapshot.tidy:
            sql, arguments = SQL.checkpoint_done, (*arguments, *_columns(snapshot.done, 3))
        elif tx is None and await self._store(
            Checkpoint(*self._fence, position, last, isolation, relaxed)
        ):
            return
        if tx is None:
            await self._write(sql, *arguments)
        elif not await tx.fetch(sql, *self._fence, *arguments):
            raise self._lost()

    async def _store(self, one: Checkpoint) -> bool:
        """Store together with other leases, if this journal is in a group."""
        try:
            return self._checkpoints is not None and await self._checkpoints.store(one)
        except (DatabaseUnavailable, OutcomeUnknown, Closed, asyncpg.PostgresError) as error:
            raise _store_error(error) from error

    async def remember(self, tx: Transaction, done: Collection[Done]) -> None:
        """Store the changes that a caller's transaction finishes; the position stays.

        Others may do the same at the same time: the fence is shared, and no row is contended for.
        """
        await require(tx, self._lease.fence)
        await tx.execute(SQL.insert_done, self._lease.fence.lease_id, *_columns(done, 3))

    async def failed(self, attempts: int, error: Exception, troubles: Troubles | None) -> None:
        """Count a failed call."""
        text = f"{type(error).__name__}: {error_text.message(error, FAILING_MAX)}"
        await self._write(SQL.note_failure, attempts, text, _json(troubles))

    async def mark(self, troubles: Troubles | None) -> None:
        """Name the change that is about to be called with."""
        await self._write(SQL.mark_call, _json(troubles))

    async def block(self) -> None:
        """Give up on the lease until an operator resumes it."""
        await self._write(SQL.block_lease)

    async def pass_on(self) -> bool:
        """Have the lease go to another host at its release; False if there is none."""
        return bool(await self._database.write(SQL.pass_on, *self._fence, idempotent=True))

    async def bury(
        self,
        changes: Sequence[Change[Any]],
        cause: FailureCause,
        snapshot: LedgerSnapshot,
        troubles: Troubles | None,
        *,
        handler: str,
        block: bool,
    ) -> list[asyncpg.Record]:
        """Write dead letters and move past them, in one transaction."""
        letters = [
            (c.lsn, c.ordinal, c.ts, c.origin, c.key, c.id, c.operation, c.raw, c.raw_previous,
             c.previous_lsn, c.ttl_expired)
            for c in changes
        ]  # fmt: skip
        return await self._write(
            SQL.bury, _json(snapshot.positions), changes[-1].ts, _json(troubles), block,
            *_columns(snapshot.done, 3), UUID(changes[0].incarnation), *_columns(letters, 11),
            cause.reason, cause.error_type, cause.message, cause.traceback, cause.attempts, handler,
        )  # fmt: skip

    async def _write(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        self._database.metrics.count_lease_statement("checkpoint", self._lease.unit)
        try:
            rows = await self._database.write(sql, *self._fence, *arguments, idempotent=True)
        except (DatabaseUnavailable, OutcomeUnknown, asyncpg.PostgresError) as error:
            raise _store_error(error) from error
        if not rows:
            raise self._lost()
        return rows

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"lease {self._lease.name!r} of {self._lease.unit!r} was lost at epoch"
            f" {self._lease.epoch}; its write was refused"
        )


def _store_error(error: Exception) -> LeaseStoreError:
    return LeaseStoreError(f"the leases cannot be reached: {error}")


def _json(value: Any) -> str | None:
    return None if value is None else _text(value)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _columns(rows: Collection[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
