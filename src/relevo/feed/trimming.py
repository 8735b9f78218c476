"""Keeps feeds within bounds: versions past their retention go, large ranges are cut (4.8, 3.3).

Trimming never holds a stamp lock, so no writer waits for it. First the new beginning of a log is
written down, then the rows go: who has not read them all is refused by name and misses nothing
silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from relevo import limits
from relevo.errors import Conflict
from relevo.leases.keeper import host_topic
from relevo.postgres import catalog

if TYPE_CHECKING:
    from uuid import UUID

    from relevo.postgres import Database, Transaction, Wakeups
    from relevo.store import Store

SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
TRIM_ROWS: Final = 1_000
TRIM_ROUNDS_MAX: Final = 100
"""Statements per turn, so that other housekeeping is not held up."""
RANGE_ITEMS_MAX: Final = 5_000_000
RANGE_BYTES_MAX: Final = 20 * 1024 * limits.MIB


async def trim(database: Database, wakeups: Wakeups) -> int:
    """Remove versions that are past their container's retention; return how many went."""

    async def mark(tx: Transaction) -> set[UUID]:
        expired = await tx.fetch(SQL.expired_versions)
        if not expired:
            return set()
        ids, before, upto = ([row[key] for row in expired] for key in ("id", "before", "lsn"))
        behind = [row["id"] for row in await tx.fetch(SQL.leases_behind, ids, before, upto)]
        if behind:
            log.warning("feed.trimmed_past_leases", leases=behind)
            await tx.execute(SQL.lock_leases, behind)
        # Rows of ranges last: a split waits for them with the stamp lock in its hands.
        await tx.execute(SQL.mark_trimmed, ids, upto)
        return {row["owner"] for row in await tx.fetch(SQL.fence_leases, behind)} - {None}

    owners = await database.run(mark, idempotent=True)
    wakeups.send(*(host_topic(owner) for owner in owners))
    total = 0
    for _ in range(TRIM_ROUNDS_MAX):
        gone = (await database.write(SQL.trim_versions, TRIM_ROWS, idempotent=True))[0]["count"]
        total += gone
        if gone < TRIM_ROWS:
            break
    return total


async def split_large(
    database: Database,
    store: Store,
    *,
    items_max: int = RANGE_ITEMS_MAX,
    bytes_max: int = RANGE_BYTES_MAX,
) -> list[int]:
    """Split every range that holds too much, by estimate; return the ranges that were split."""
    whole = (await database.fetch(SQL.item_table_size))[0]
    if whole["items"] <= items_max and whole["bytes"] <= bytes_max:
        return []
    item_bytes = whole["bytes"] / max(1, whole["items"])
    split = []
    for row in await database.fetch(SQL.estimate_ranges):
        if row["items"] <= items_max and row["items"] * item_bytes <= bytes_max:
            continue
        try:
            await store.container(row["container"]).split(row["id"])
        except Conflict as error:
            log.warning("feed.range_not_split", range=row["id"], error=str(error))
        else:
            split.append(row["id"])
            log.info("feed.range_split", container=row["container"], range=row["id"])
    return split
