"""Cuts ranges that hold too much or are written too fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.errors import Conflict, NotFound
from relevo.kernel.postgres import catalog
from relevo.kernel.telemetry.logs import get_logger
from relevo.store import lifecycle

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database
    from relevo.store import Store

SQL = catalog.load("relevo.feed")
log = get_logger(__name__)
RANGE_ITEMS_MAX: Final = 5_000_000
RANGE_BYTES_MAX: Final = 20 * 1024 * limits.MIB


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
    return [
        row["id"]
        for row in await database.fetch(SQL.estimate_ranges)
        if row["items"] > items_max or row["items"] * item_bytes > bytes_max
        if await _split(store, row["container"], row["id"], "size")
    ]


async def split_busy(
    database: Database,
    store: Store,
    *,
    per_second: float = lifecycle.RANGE_WRITES_PER_SECOND_MAX,
    seconds: float = lifecycle.SUSTAINED_SECONDS,
) -> list[int]:
    """Split every range with sustained heavy writes; return the ranges that were split."""
    return [
        one.range_id
        for one in await lifecycle.busy_ranges(database, per_second, seconds)
        if await _split(store, one.container, one.range_id, "writes")
    ]


async def _split(store: Store, container: str, range_id: int, reason: str) -> bool:
    try:
        await store.container(container).split(range_id)
    except (Conflict, NotFound) as error:
        log.warning("feed.range_not_split", range=range_id, error=str(error))
        return False
    log.info("feed.range_split", container=container, range=range_id, reason=reason)
    return True
