"""Writes items: through the pipeline if their container is a table, else directly."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import msgspec

from relevo.dataverse.bulk.sources import SQL
from relevo.errors import InvalidValue, ItemExists, NotFound
from relevo.store.items import partition_key_of

if TYPE_CHECKING:
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.postgres import Transaction

_REFUSALS: Final[dict[str, type[NotFound | ItemExists | InvalidValue]]] = {
    "23505": ItemExists, "P0002": NotFound, "42704": NotFound, "22023": InvalidValue,
    "54000": InvalidValue,
}  # fmt: skip


async def remove(
    tx: Transaction, ctx: JobContext, place: tuple[str, str | None], pk: str, item: dict[str, Any]
) -> None:
    """Remove an item of a place, (container, table or None)."""
    container, table = place
    if table is not None:
        await ctx.service.delete(table, item["id"], partition_key=partition_key_of(pk), tx=tx)
        return
    await _put(tx, container, item, "delete")


async def put(
    tx: Transaction, ctx: JobContext, place: tuple[str, str | None], item: dict[str, Any], kind: str
) -> bool:
    """Write an item into a place, (container, table or None); return whether it was created."""
    container, table = place
    if table is not None:
        await ctx.service.create(table, item, tx=tx)
        return True
    if kind == "upsert":
        with contextlib.suppress(ItemExists):
            async with tx.transaction():
                await _put(tx, container, item, "create")
            return True
        with contextlib.suppress(NotFound):  # deleted meanwhile
            async with tx.transaction():
                await _put(tx, container, item, "replace")
            return False
    await _put(tx, container, item, "create")
    return True


async def _put(tx: Transaction, container: str, item: dict[str, Any], kind: str) -> None:
    try:
        await tx.execute(SQL.put_item, container, msgspec.json.encode(item).decode(), kind)
    except asyncpg.PostgresError as error:
        refusal = _REFUSALS.get(error.sqlstate or "")
        if refusal is None:
            raise
        raise refusal(str(error)) from error
