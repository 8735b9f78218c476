"""The fence check that other parts put into their own transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relevo.errors import LeaseLost
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from relevo.kernel.leases.model import Fence
    from relevo.kernel.postgres.database import Transaction

SQL = catalog.load(__package__)


async def fence(tx: Transaction, fences: Iterable[Fence]) -> frozenset[Fence]:
    """Return the fences that are stale; the others hold until `tx` ends.

    Call it as late in the transaction as possible, for it holds off the balancer. Data of stale
    fences must not be written; data of the others may be. One round trip, whatever their number.
    """
    asked = sorted(fences)
    rows = await tx.fetch(SQL.stale_fences, [f.lease_id for f in asked], [f.epoch for f in asked])
    stale = {(row["stale_id"], row["stale_epoch"]) for row in rows}
    return frozenset(f for f in asked if (f.lease_id, f.epoch) in stale)


async def require(tx: Transaction, *fences: Fence) -> None:
    """Raise `LeaseLost`, and so undo the transaction, unless every fence holds."""
    stale = await fence(tx, fences)
    if stale:
        lost = ", ".join(f"{f.unit}/{f.name} (epoch {f.epoch})" for f in sorted(stale))
        raise LeaseLost(f"no longer owned: {lost}; nothing was written")
