"""What a worker stores with its lease: every statement carries the fence, or writes nothing."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import (
    DatabaseUnavailable,
    LeaseLost,
    LeaseStoreError,
    OutcomeUnknown,
)
from relevo.feed.isolation import Isolation
from relevo.postgres import catalog
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import asyncpg

    from relevo.feed.model import Change
    from relevo.leases import Lease
    from relevo.postgres import Database, Transaction

SQL = catalog.load(__package__)
TEXT_MAX = 8_000
"""Characters of an error's message or traceback that are kept."""


class Stored(Struct, frozen=True, kw_only=True):
    """What a worker finds when it begins."""

    interval: Interval
    positions: dict[int, int]
    attempts: int
    failing: str | None
    crashes: int
    isolation: Isolation | None


class Cause(Struct, frozen=True, kw_only=True):
    """Why a change is given up."""

    reason: Literal["failed", "crash"]
    error_type: str
    message: str
    traceback: str = ""
    attempts: int

    @classmethod
    def of(cls, error: BaseException, attempts: int) -> Cause:
        """A handler raised."""
        trace = "".join(traceback.format_exception(error))
        return cls(
            reason="failed", error_type=type(error).__name__, message=str(error)[:TEXT_MAX],
            traceback=trace[-TEXT_MAX:], attempts=attempts,
        )  # fmt: skip


class Journal:
    """Reads and writes one lease in the name of its owner."""

    def __init__(self, database: Database, lease: Lease, incarnation: UUID) -> None:
        self._database = database
        self._lease = lease
        self._fence = (lease.fence.lease_id, lease.epoch, incarnation)

    async def open(self) -> Stored:
        """Read what the last owner left; a loss without release is counted first (10.6)."""
        if not self._lease.clean:
            await self._write(SQL.note_loss)
        try:
            rows = await self._database.fetch(SQL.feed_lease, self._lease.fence.lease_id)
        except DatabaseUnavailable as error:
            raise _store_error(error) from error
        if not rows:
            raise self._lost()
        row, isolation = rows[0], rows[0]["isolation"]
        return Stored(
            interval=Interval(row["epk_min"], row["epk_max"]),
            positions=msgspec.json.decode(row["position"], type=dict[int, int]),
            attempts=row["attempts"],
            failing=row["failing"],
            crashes=row["crashes"],
            isolation=msgspec.json.decode(isolation, type=Isolation) if isolation else None,
        )

    async def checkpoint(
        self,
        positions: Mapping[int, int],
        last: datetime | None,
        isolation: Isolation | None,
        tx: Transaction | None = None,
    ) -> None:
        """Move the position, in a transaction of the caller if one is given."""
        arguments = (_json(positions), last, _json(isolation))
        if tx is None:
            await self._write(SQL.checkpoint, *arguments)
        elif not await tx.fetch(SQL.checkpoint, *self._fence, *arguments):
            raise self._lost()

    async def failed(self, attempts: int, error: Exception, isolation: Isolation) -> None:
        """Count a failed call."""
        text = f"{type(error).__name__}: {error}"[:2000]
        await self._write(SQL.note_failure, attempts, text, _json(isolation))

    async def mark(self, isolation: Isolation) -> None:
        """Name the change that is about to be called with."""
        await self._write(SQL.mark_call, _json(isolation))

    async def block(self) -> None:
        """Give up on the lease until an operator resumes it."""
        await self._write(SQL.block_lease)

    async def pass_on(self) -> bool:
        """Have the lease go to another host at its release; False if there is none."""
        return bool(await self._database.write(SQL.pass_on, *self._fence, idempotent=True))

    async def bury(
        self,
        change: Change[Any],
        cause: Cause,
        positions: Mapping[int, int],
        isolation: Isolation | None,
        *,
        handler: str,
        block: bool,
    ) -> asyncpg.Record:
        """Write a dead letter and move past it, in one transaction (P9)."""
        rows = await self._write(
            SQL.bury, _json(positions), change.ts, _json(isolation), block,
            UUID(change.incarnation), change.origin, change.lsn, change.ordinal, change.key,
            change.id, change.operation, change.raw, change.raw_previous, change.previous_lsn,
            change.ttl_expired, cause.reason, cause.error_type, cause.message, cause.traceback,
            cause.attempts, handler,
        )  # fmt: skip
        return rows[0]

    async def _write(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        try:
            rows = await self._database.write(sql, *self._fence, *arguments, idempotent=True)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise _store_error(error) from error
        if not rows:
            raise self._lost()
        return rows

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"lease {self._lease.name!r} of {self._lease.unit!r} was lost at epoch"
            f" {self._lease.epoch}; what was to be written in its name was refused"
        )


def _store_error(error: Exception) -> LeaseStoreError:
    return LeaseStoreError(f"the leases cannot be reached: {error}")


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
