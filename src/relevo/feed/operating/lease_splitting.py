"""Leases are cut: along the ranges after a split, or finer because an operator asks.

Cutting is one transaction under the lock that a change of epoch needs: leases that tile the old
one's interval are put beside it, then the old one goes. So a crash leaves it or all of them, and at
every committed instant the leases of a unit tile the hash space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from relevo.errors import LeaseLost
from relevo.kernel import faults
from relevo.kernel.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from relevo.feed.reading.log import FeedSource
    from relevo.kernel.leases import Lease
    from relevo.kernel.postgres import Database, Transaction
    from relevo.store.ranges import Interval

SQL = catalog.load("relevo.feed")


async def follow(
    database: Database,
    lease: Lease,
    host: UUID,
    source: FeedSource,
    interval: Interval,
    positions: Mapping[int, int],
) -> bool:
    """Replace a lease that spans several ranges by one per range, in the name of its owner.

    `positions` is where the lease stands in each open range of `interval`; everything before is
    done and nothing is in the handler's hands. True if the lease is gone: it is asked to stop, and
    the host finds the new ones at once among its leases. Raises `LeaseLost` if it was lost.
    """
    ranges = source.ranges.over(interval)
    if len(ranges) < 2:
        return False
    parts = [
        (range_.interval.intersect(interval), {range_.id: positions[range_.id]})
        for range_ in ranges
    ]

    async def work(tx: Transaction) -> bool:
        held = await tx.fetch(SQL.hold_host, host)
        await tx.execute(SQL.lock_leases, [lease.fence.lease_id])
        row = await tx.fetchrow(SQL.owned_lease, lease.fence.lease_id, lease.epoch, host)
        if row is None or not held:
            raise LeaseLost(
                f"lease {lease.name!r} of {lease.unit!r} was lost at epoch {lease.epoch}; it was"
                " not cut along its ranges, its next owner does that"
            )
        if not row["follow"] or row["state"] != "active":
            return False
        await replace(tx, lease.fence.lease_id, parts, owner=host)
        await tx.execute(SQL.wake_host, host)
        return True

    # Before the commit: a heartbeat that finds the lease gone must not take it for lost.
    lease.dissolving, gone = True, False
    try:
        gone = await database.run(work, idempotent=True)
    finally:
        lease.dissolving = gone
    if gone:
        lease.ask_to_stop("split")
    return gone


async def replace(
    tx: Transaction,
    lease_id: int,
    parts: Sequence[tuple[Interval, Mapping[int, int]]],
    *,
    owner: UUID | None = None,
) -> None:
    """Put leases over `parts`, with their positions, in the place of one; its lock is held.

    They keep its state and the feed's notes about it, and belong to `owner`, or to no host.
    """
    await tx.execute(
        SQL.insert_child_leases,
        lease_id,
        owner,
        [interval.low for interval, _ in parts],
        [interval.high for interval, _ in parts],
        [position_text(positions) for _, positions in parts],
    )
    await tx.execute(SQL.copy_done, lease_id, [str(interval) for interval, _ in parts])
    await faults.point("mid_split")
    await tx.execute(SQL.delete_lease, lease_id)


def position_text(positions: Mapping[int, int]) -> str:
    """Return positions by range as a lease keeps them."""
    return msgspec.json.encode({str(k): v for k, v in positions.items()}).decode()
