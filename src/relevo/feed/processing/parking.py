"""Changes that wait behind a dead letter of their key, in order (policy `block_key`).

A key is blocked while the unit has a letter of it that blocks; a parked change is such a letter,
too. Whether a change is parked and whether a key's last letter goes are decided one after the
other, so that no change is parked behind nothing and none overtakes one that is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from relevo.errors import DatabaseUnavailable, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.feed.model import Change
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database, Transaction

SQL = catalog.load("relevo.feed")


async def lock_keys(tx: Transaction, unit_id: int, keys: Sequence[str]) -> None:
    """Keep others from parking changes of these keys, and from removing their letters."""
    await tx.execute(SQL.lock_letter_keys, unit_id, list(keys))


async def park(
    database: Database, lease: Lease, host: UUID, changes: Sequence[Change[Any]], handler: str
) -> list[Change[Any]]:
    """Park the changes whose key is blocked, in the name of the lease's owner; return the others.

    Parking twice does nothing, so a batch that is delivered again is parked again.
    """
    keys = sorted({change.key for change in changes})
    try:
        rows = await database.fetch(SQL.blocked_keys, lease.fence.lease_id, keys)
        blocked = {row["pk"] for row in rows}
        if not blocked:
            return list(changes)
        waiting = [change for change in changes if change.key in blocked]
        parked = await database.run(
            lambda tx: _park(tx, lease, host, waiting, handler), idempotent=True
        )
    except (DatabaseUnavailable, OutcomeUnknown) as error:
        raise LeaseStoreError(f"changes cannot be parked: {error}") from error
    return [change for change in changes if change.key not in parked]


async def _park(
    tx: Transaction, lease: Lease, host: UUID, changes: Sequence[Change[Any]], handler: str
) -> set[str]:
    """Park changes of keys that are still blocked; return those keys."""
    unit_id = await tx.fetchval(SQL.unit_of_owned_lease, lease.fence.lease_id, lease.epoch, host)
    if unit_id is None:
        raise LeaseLost(
            f"lease {lease.name!r} of {lease.unit!r} was lost at epoch {lease.epoch}; nothing was"
            " parked in its name"
        )
    keys = sorted({change.key for change in changes})
    await lock_keys(tx, unit_id, keys)
    rows = await tx.fetch(SQL.blocked_keys, lease.fence.lease_id, keys)
    blocked = {row["pk"] for row in rows}
    waiting = [change for change in changes if change.key in blocked]
    if waiting:
        await tx.execute(
            SQL.park_changes, unit_id, lease.name, host, handler, UUID(waiting[0].incarnation),
            *([getattr(change, name) for change in waiting] for name in _COLUMNS),
        )  # fmt: skip
    return blocked


_COLUMNS = (
    "lsn", "ordinal", "ts", "origin", "key", "id", "operation", "raw", "raw_previous",
    "previous_lsn", "ttl_expired",
)  # fmt: skip
