"""Bulk delete: the job (type 13) has an ordered set of queries; a child (23) works off each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk import engine, writing
from relevo.dataverse.bulk.model import Part, Row, RowFailure, RowQuery
from relevo.dataverse.bulk.notices import Notice
from relevo.dataverse.bulk.parts import Held, Parent, Standing, heed
from relevo.dataverse.bulk.sources import SQL, ImportRows, Items, table_of
from relevo.dataverse.bulk.sources import Jobs as JobRows
from relevo.errors import NotFound
from relevo.jobs import states
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import BULK_DELETE_SUBPROCESS, is_platform
from relevo.store import items, lifecycle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from relevo.dataverse.bulk.rights import RightsOf
    from relevo.jobs.running.context import JobContext
    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database, Transaction
    from relevo.pipeline.registry import Registry

PART: Final = "relevo.dataverse.bulk.delete.part"


class Deletion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a bulk delete is asked for."""

    queries: tuple[RowQuery, ...]
    max_failures: int | None = None
    notice: Notice | None = None


class Deleting(Parent):
    """A bulk delete: one child after the other."""

    handler = PART
    operation_type = BULK_DELETE_SUBPROCESS
    word = "query"

    def __init__(self, jobs: Jobs, ctx: JobContext, asked: Deletion) -> None:
        super().__init__(jobs, ctx)
        self._asked = asked

    def count(self) -> int:
        """Return how many queries there are."""
        return len(self._asked.queries)

    def queries(self) -> Sequence[RowQuery]:
        """Return what is deleted."""
        return self._asked.queries

    def asked_of(self, at: Standing) -> Mapping[str, Any]:
        """Return the query of a child."""
        claim, asked = self._ctx.claim, self._asked
        part = Part(
            parent=claim.id, index=at.query, query=asked.queries[at.query], series=claim.series,
            max_failures=asked.max_failures, failures_before=at.failure,
        )  # fmt: skip
        told: dict[str, Any] = msgspec.to_builtins(part)
        return told


class Removing:
    """One query of a bulk delete: its rows are deleted."""

    def __init__(
        self, jobs: Jobs, registry: Registry | None, rights_of: RightsOf, ctx: JobContext
    ) -> None:
        self._jobs = jobs
        self._database: Database = jobs.database
        self._rights_of = rights_of
        self._registry = registry
        self._ctx = ctx
        self._part = msgspec.convert(ctx.data, Part)

    async def run(self) -> dict[str, int] | None:
        """Delete what the query finds; returns the counts, None if it has to wait."""
        part = self._part
        walk = engine.Walk(
            self._database, self._registry, self._ctx, rights_of=self._rights_of,
            max_failures=part.max_failures, part=part, heed=self._heed,
        )  # fmt: skip
        try:
            counts = await walk.over([part.query], self._apply)
        except Held:
            return None
        await self._ctx.write(SQL.end_part, part.parent, self._ctx.id)
        return counts

    async def _heed(self) -> None:
        await heed(self._jobs, self._ctx, self._part.parent)

    async def _apply(self, tx: Transaction, source: Any, rows: Sequence[Row]) -> list[RowFailure]:
        match source:
            case JobRows():
                return await self._remove_jobs(tx, rows)
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
        await tx.execute(SQL.mark_import_row, source.id, row.key[0], False, False)

    async def _remove_jobs(self, tx: Transaction, rows: Sequence[Row]) -> list[RowFailure]:
        """Delete jobs: records at once, others as the command does."""
        refused = [one for one in rows if not _completed(one) and _is_platform(one)]
        live = [one.body["id"] for one in rows if not _completed(one) and one not in refused]
        if live:
            keys = [row["key"] for row in await tx.fetch(SQL.gates, live)]
            await tx.execute(SQL.lock_gates, sorted(keys))
            gone = {row["id"] for row in await tx.fetch(SQL.delete_live, live, sorted(keys))}
            # Completed since it was read: a record like others.
            late = [one for one in live if one not in gone]
            await tx.fetch(SQL.delete_completed, late)
        done = [one.body["id"] for one in rows if _completed(one)]
        if done:
            await tx.fetch(SQL.delete_completed, done)
        text = codes.TEXTS[codes.PLATFORM_DELETE]
        return [RowFailure(one.id, codes.PLATFORM_DELETE, text) for one in refused]


def _completed(row: Row) -> bool:
    return row.body["status"] in states.COMPLETED


def _is_platform(row: Row) -> bool:
    return is_platform(row.body["operation_type"], system=row.body["system"])
