"""Writes of a host about its leases: progress, release, hand-over and load.

Leases of one host that are saved or given up at about the same time share a statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from relevo import limits
from relevo.errors import LeaseLost, TooLarge
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import asyncpg

    from relevo.kernel.leases.held import Lease
    from relevo.kernel.leases.model import Position
    from relevo.kernel.postgres.database import Database, Transaction

SQL = catalog.load(__package__)
log = get_logger(__name__)


class Given(Struct, frozen=True):
    """A lease that is saved or given up."""

    id: int
    epoch: int
    unit: str
    position: str | None = None
    clean: bool = True


class Savings:
    """Writes in the name of one incarnation; raises `LeaseLost` for leases of others."""

    def __init__(self, database: Database, incarnation: UUID) -> None:
        self._database = database
        self._incarnation = incarnation
        metrics = database.metrics
        self._saves: Group[Given, None] = Group(
            "lease save", self._save_all, key=lambda saved: saved.id, metrics=metrics
        )
        self._give_ups: Group[Given, UUID | None] = Group(
            "lease give-up", self._give_up_all, metrics=metrics
        )

    async def close(self) -> None:
        """Wait for the writes under way."""
        await self._saves.close()
        await self._give_ups.close()

    async def save(self, lease: Lease, position: Position) -> None:
        """Store how far the work has come."""
        text = msgspec.json.encode(position)
        if len(text) > limits.LEASE_POSITION_BYTES_MAX:
            raise TooLarge(
                f"a position of {len(text)} bytes is too large; at most"
                f" {limits.LEASE_POSITION_BYTES_MAX} are kept with a lease"
            )
        if lease.over:
            lease.check()
        await self._saves.call(
            Given(lease.fence.lease_id, lease.epoch, lease.unit, position=text.decode())
        )

    async def give_up(self, given: Given) -> UUID | None:
        """Release a lease, or hand it over; return its new owner."""
        return await self._give_ups.call(given)

    async def pass_on(self, lease: Lease, seconds: float) -> bool:
        """Let another host have a lease on which work fails, and keep away from it for a while.

        False if there is no other, or if the lease keeps away from another host already: with all
        hosts failing it goes round once in so many seconds, not all the time.
        """
        self._count("release", lease.unit)
        rows = await self._database.write(
            SQL.pass_on_failing, lease.fence.lease_id, lease.epoch, self._incarnation, seconds,
            idempotent=True,
        )  # fmt: skip
        if rows:
            log.warning("lease.passed_on", unit=lease.unit, lease=lease.name, epoch=lease.epoch)
            lease.ask_to_stop("handler_error")
        return bool(rows)

    def _count(self, statement: str, *units: str) -> None:
        alone = units[0] if len(set(units)) == 1 else "all"
        self._database.metrics.count_lease_statement(statement, alone)

    async def _give_up_all(self, entries: Sequence[Given]) -> list[UUID | Exception | None]:
        self._count("release", *(e.unit for e in entries))

        async def work(tx: Transaction) -> list[asyncpg.Record]:
            await tx.execute(SQL.lock_leases, [e.id for e in entries])
            return await tx.fetch(
                SQL.give_up_leases,
                self._incarnation,
                [e.id for e in entries],
                [e.epoch for e in entries],
                [e.position for e in entries],
                [e.clean for e in entries],
            )

        gone = {row["id"]: row["owner"] for row in await self._database.run(work, idempotent=True)}
        return [gone[e.id] if e.id in gone else _lost(e) for e in entries]

    async def _save_all(self, entries: Sequence[Given]) -> list[Exception | None]:
        self._count("checkpoint", *(e.unit for e in entries))
        rows = await self._database.write(
            SQL.save_positions,
            self._incarnation,
            [e.id for e in entries],
            [e.epoch for e in entries],
            [e.position for e in entries],
            idempotent=True,
        )
        saved = {row["id"] for row in rows}
        return [None if e.id in saved else _lost(e) for e in entries]


def _lost(entry: Given) -> Any:
    return LeaseLost(
        f"lease number {entry.id} is no longer this host's at epoch {entry.epoch};"
        " what was to be written in its name was refused"
    )


async def report_loads(database: Database, host: UUID, leases: Sequence[Lease]) -> None:
    """Store the load of the leases for which it differs from what is stored, in one statement.

    Loads change once in 10 s, for all leases at the same instant, and not at all for idle ones.
    """
    now = instant()
    found = {
        lease.fence.lease_id: (lease, lease.meter.read(now)) for lease in leases if not lease.over
    }
    news = [(one, load) for one, load in found.values() if load != one.stored_load]
    if not news:
        return
    database.metrics.count_lease_statement("load")
    rows = await database.write(
        SQL.save_loads,
        host,
        [one.fence.lease_id for one, _ in news],
        [one.epoch for one, _ in news],
        [load.busy for _, load in news],
        [load.changes_s for _, load in news],
        [load.bytes_s for _, load in news],
        idempotent=True,
    )
    for row in rows:
        one, load = found[row["id"]]
        one.stored_load = load
