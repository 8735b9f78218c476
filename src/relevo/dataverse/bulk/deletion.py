"""Bulk delete: the job (type 13) has a list of queries and runs a child job (23) for each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk import engine, item_writes
from relevo.dataverse.bulk.children import ParentJob, ParentProgress, WaitsForOther, follow_parent
from relevo.dataverse.bulk.model import BulkRow, ChildTask, RowFailure, RowQuery
from relevo.dataverse.bulk.notices import Notice
from relevo.dataverse.bulk.sources import SQL, ImportSource, ItemSource, JobSource, table_of
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
    from relevo.pipeline.registry import PipelineRegistry

PART: Final = "relevo.dataverse.bulk.delete.part"


class Deletion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of a bulk delete."""

    queries: tuple[RowQuery, ...]
    max_failures: int | None = None
    notice: Notice | None = None


class BulkDeleteJob(ParentJob):
    """A bulk delete, which runs its children one after the other."""

    handler = PART
    operation_type = BULK_DELETE_SUBPROCESS
    word = "query"

    def __init__(self, jobs: Jobs, ctx: JobContext, deletion: Deletion) -> None:
        super().__init__(jobs, ctx, deletion.queries, len(deletion.queries))
        self._deletion = deletion

    def parameters_of(self, at: ParentProgress) -> Mapping[str, Any]:
        """Return the parameters of a child."""
        claim, deletion = self._ctx.claim, self._deletion
        part = ChildTask(
            parent=claim.id, index=at.query, query=deletion.queries[at.query], series=claim.series,
            max_failures=deletion.max_failures, failures_before=at.failure,
        )  # fmt: skip
        parameters: dict[str, Any] = msgspec.to_builtins(part)
        return parameters


class DeleteChild:
    """A child of a bulk delete: deletes the rows of one query."""

    def __init__(
        self, jobs: Jobs, registry: PipelineRegistry | None, rights_of: RightsOf, ctx: JobContext
    ) -> None:
        self._jobs = jobs
        self._database: Database = jobs.database
        self._rights_of = rights_of
        self._registry = registry
        self._ctx = ctx
        self._part = msgspec.convert(ctx.data, ChildTask)

    async def run(self) -> dict[str, int] | None:
        """Delete the rows of the query; return the counts, or None if the job has to wait."""
        part = self._part
        walk = engine.BulkRun(
            self._database, self._registry, self._ctx, rights_of=self._rights_of,
            max_failures=part.max_failures, part=part, follow_parent=self._follow_parent,
        )  # fmt: skip
        try:
            counts = await walk.over([part.query], self._apply)
        except WaitsForOther:
            return None
        await self._ctx.write(SQL.end_part, part.parent, self._ctx.id)
        return counts

    async def _follow_parent(self) -> None:
        await follow_parent(self._jobs, self._ctx, self._part.parent)

    async def _apply(
        self, tx: Transaction, source: Any, rows: Sequence[BulkRow]
    ) -> list[RowFailure]:
        match source:
            case JobSource():
                return await self._remove_jobs(tx, rows)
            case ItemSource():
                return await engine.each(self._item)(tx, source, rows)
            case ImportSource():
                return await engine.each(self._imported)(tx, source, rows)
            case _:
                raise AssertionError(f"unknown source {source!r}")

    async def _item(self, tx: Transaction, source: ItemSource, row: BulkRow) -> None:
        await item_writes.remove(
            tx, self._ctx, (source.container, source.table), row.key[0], row.body
        )

    async def _imported(self, tx: Transaction, source: ImportSource, row: BulkRow) -> None:
        """Undo one row of an import; an item that no longer exists is no failure."""
        item = row.body["item"]
        row_import = await tx.fetchrow(SQL.read_import, source.id)
        container = None
        if row_import is not None:
            container = await lifecycle.find(self._database, row_import["container"])
        if container is not None:
            table = table_of(self._registry, RowQuery(container=container.info.name))
            place = (container.info.name, None if table is None else table.name)
            with contextlib.suppress(NotFound):
                async with tx.transaction():
                    pk = items.document(item, container.info).key.pk
                    await item_writes.remove(tx, self._ctx, place, pk, item)
        await tx.execute(SQL.mark_import_row, source.id, row.key[0], False, False)

    async def _remove_jobs(self, tx: Transaction, rows: Sequence[BulkRow]) -> list[RowFailure]:
        """Delete jobs: completed ones directly, others by the command `delete`."""
        refused = [one for one in rows if not _completed(one) and _is_platform(one)]
        live = [one.body["id"] for one in rows if not _completed(one) and one not in refused]
        if live:
            keys = [row["key"] for row in await tx.fetch(SQL.gates, live)]
            await tx.execute(SQL.lock_gates, sorted(keys))
            gone = {row["id"] for row in await tx.fetch(SQL.delete_live, live, sorted(keys))}
            # These were completed after they were read.
            late = [one for one in live if one not in gone]
            await tx.fetch(SQL.delete_completed, late)
        done = [one.body["id"] for one in rows if _completed(one)]
        if done:
            await tx.fetch(SQL.delete_completed, done)
        text = codes.TEXTS[codes.PLATFORM_DELETE]
        return [RowFailure(one.id, codes.PLATFORM_DELETE, text) for one in refused]


def _completed(row: BulkRow) -> bool:
    return row.body["status"] in states.COMPLETED


def _is_platform(row: BulkRow) -> bool:
    return is_platform(row.body["operation_type"], system=row.body["system"])
