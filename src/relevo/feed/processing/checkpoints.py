"""Checkpoints of all leases of a processor on one host ride in one statement."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.grouping import Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.kernel.postgres import Database

SQL = catalog.load("relevo.feed")


class Checkpoint(Struct, frozen=True):
    """Where a lease stands, in the name of its owner; as the statement takes it."""

    lease_id: int
    epoch: int
    owner: UUID
    position: str
    last: datetime | None
    isolation: str | None
    relaxed: bool
    """Whether a crash of the server may forget it; if all of a statement may be."""


class Checkpoints:
    """Stores positions, those of many leases at once if they come at once."""

    def __init__(self, database: Database, unit: str) -> None:
        self._database = database
        self._unit = unit
        self._group: Group[Checkpoint, bool] = Group(
            "feed checkpoint", self._store_all, metrics=database.metrics
        )

    async def store(self, one: Checkpoint) -> bool:
        """Return whether it is stored. If not, the lease was lost or somebody else writes it.

        So nobody waits here for the transaction of another lease; whoever is told no, tries alone.
        """
        return await self._group.call(one)

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._group.close()

    async def _store_all(self, entries: Sequence[Checkpoint]) -> list[bool | Exception]:
        self._database.metrics.count_lease_statement("checkpoint", self._unit)
        rows = await self._database.write(
            SQL.checkpoints,
            [one.lease_id for one in entries],
            [one.epoch for one in entries],
            [one.owner for one in entries],
            [one.position for one in entries],
            [one.last for one in entries],
            [one.isolation for one in entries],
            all(one.relaxed for one in entries),
            idempotent=True,
        )
        stored = {row["lease_id"] for row in rows}
        return [one.lease_id in stored for one in entries]
