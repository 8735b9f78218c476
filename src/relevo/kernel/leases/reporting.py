"""Tells the store how busy the leases of a host are; says nothing while nothing changes (P12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.kernel.leases.held import Lease
    from relevo.kernel.postgres.database import Database

SQL = catalog.load(__package__)


async def report_loads(database: Database, host: UUID, leases: Sequence[Lease]) -> None:
    """Store the load of the leases for which it differs from what is stored, in one statement.

    Loads change once in 10 s, for all leases at the same instant, and not at all for idle ones.
    """
    now = instant()
    found = {one.fence.lease_id: (one, one.meter.read(now)) for one in leases if not one.over}
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
