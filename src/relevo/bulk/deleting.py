"""Bulk delete (type 13): an ordered set of queries, each begun after the former."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.bulk import engine, writing
from relevo.bulk.model import Row, RowFailure, RowQuery
from relevo.bulk.sources import SQL, ImportRows, Items, Jobs, table_of
from relevo.errors import NotFound
from relevo.jobs import codes, states
from relevo.store import items, lifecycle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from relevo.bulk.engine import Walk
    from relevo.jobs.running.context import JobContext
    from relevo.pipeline.registry import Registry
    from relevo.postgres import Database, Transaction


class Deletion(Struct, frozen=True, kw_only=True):
    """What a bulk delete is asked for."""

    queries: tuple[RowQuery, ...]
    max_failures: int | None = None


class Deleting:
    """The rows of one bulk delete."""

    def __init__(self, database: Database, registry: Registry | None, ctx: JobContext) -> None:
        self._database = database
        self._registry = registry
        self._ctx = ctx

    async def run(self, walk: Walk, asked: Deletion) -> dict[str, int]:
        """Delete what the queries find; returns the counts."""
        return await walk.over(asked.queries, self._apply)

    async def _apply(self, tx: Transaction, source: Any, rows: Sequence[Row]) -> list[RowFailure]:
        match source:
            case Jobs():
                return await self._jobs(tx, rows)
            case Items():
                return await engine.each(self._item)(tx, source, rows)
            case ImportRows():
                return await engine.each(self._imported)(tx, source, rows)
            case _:
                raise AssertionError(f"no source is {source!r}")

    async def _item(self, tx: Transaction, source: Items, row: Row) -> None:
        await writing.remove(tx, self._ctx, (source.container, source.table), row.key[0], row.body)

    async def _imported(self, tx: Transaction, source: ImportRows, row: Row) -> None:
        """Undo one row of an import; an item that is gone already is no failure."""
        item = row.body["item"]
        told = await tx.fetchrow(SQL.read_import, source.id)
        found = None if told is None else await lifecycle.find(self._database, told["container"])
        if found is not None:
            table = table_of(self._registry, RowQuery(container=found.info.name))
            place = (found.info.name, None if table is None else table.name)
            with contextlib.suppress(NotFound):
                async with tx.transaction():
                    pk = items.document(item, found.info).key.pk
                    await writing.remove(tx, self._ctx, place, pk, item)
        await tx.execute(SQL.mark_import_row, source.id, row.key[0], False)

    async def _jobs(self, tx: Transaction, rows: Sequence[Row]) -> list[RowFailure]:
        """Delete jobs: records at once, others as the command does (A31)."""
        refused = [one for one in rows if one.body["system"] and not _completed(one)]
        live = [one.body["id"] for one in rows if not _completed(one) and one not in refused]
        if live:
            keys = [row["key"] for row in await tx.fetch(SQL.gates, live)]
            await tx.execute(SQL.lock_gates, sorted(keys))
            gone = {row["id"] for row in await tx.fetch(SQL.delete_live, live, sorted(keys))}
            # Completed since it was read: a record like others.
            late = [one for one in live if one not in gone]
            await tx.fetch(SQL.delete_completed, late)
        done: list[UUID] = [one.body["id"] for one in rows if _completed(one)]
        if done:
            await tx.fetch(SQL.delete_completed, done)
        text = codes.TEXTS[codes.PLATFORM_DELETE]
        return [RowFailure(one.id, codes.PLATFORM_DELETE, text) for one in refused]


def _completed(row: Row) -> bool:
    return row.body["status"] in states.COMPLETED
