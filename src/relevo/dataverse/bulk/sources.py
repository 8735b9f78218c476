"""Sources of rows: items, jobs, rows of an import. Each has a highest key, a count, and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk import conditions
from relevo.dataverse.bulk.conditions import RowConditions
from relevo.dataverse.bulk.model import BulkRow, RowQuery
from relevo.errors import InvalidQuery, NotFound
from relevo.jobs.model import SYSTEM
from relevo.jobs.querying.catalogue import JOBS
from relevo.kernel import cpu
from relevo.kernel.postgres import Database, catalog
from relevo.kernel.querying.fetchxml.conditions import Asker
from relevo.kernel.querying.model import Caller
from relevo.store import lifecycle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from relevo.dataverse.bulk.conditions import Planned
    from relevo.pipeline.registry import PipelineRegistry
    from relevo.pipeline.tables import Table

SQL = catalog.load("relevo.dataverse.bulk")
FIRST: Final = -(2**62)
LAST: Final = 2**62
_STAMP: Final = "to_char({} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
_COLUMNS: Final = {
    "asyncoperationid": "j.id", "name": "j.name", "statecode": "j.status / 10",
    "statuscode": "j.status", "operationtype": "j.operation_type", "messagename": "j.message_name",
    "ownerid": "j.owner", "errorcode": "j.error_code", "retrycount": "j.retries",
    "dependencytoken": "j.token", "owningextensionid": "j.extension",
    "primaryentitytype": "j.regarding_type", "regardingobjectid": "j.regarding_id",
    "relevo_lane": "j.lane", "relevo_seriesid": "j.series",
    **{
        name: _STAMP.format(f"j.{column}") for name, column in (
            ("createdon", "created_at"), ("modifiedon", "modified_at"),
            ("startedon", "started_at"), ("completedon", "completed_at"),
            ("postponeuntil", "postpone_until"),
        )
    },
}  # fmt: skip
_JOB: Final = (
    "jsonb_strip_nulls(jsonb_build_object("
    + ", ".join(f"'{name}', {sql}" for name, sql in _COLUMNS.items())
    + "))"
)
"""The SQL of a job as the JSON document that conditions test."""
_COMPLETED: Final = ("statecode", "=", 3)
JOB_COLUMNS: Final = frozenset(_COLUMNS)
"""The columns that conditions on jobs may name."""


class SourceBounds(Struct, frozen=True):
    """The highest key of a source, and the number of rows up to it."""

    highest: tuple[Any, ...]
    total: int


class OwnJob(Struct, frozen=True):
    """The job that reads a source, and its series; a source of jobs leaves these out."""

    id: UUID = UUID(int=0)
    series: UUID | None = None


class ItemSource(Struct, frozen=True):
    """Items of a container; `table` names their table if the container is one."""

    database: Database
    container: str
    container_id: int
    conditions: RowConditions
    table: str | None = None

    async def bounds(self) -> SourceBounds | None:
        """Return the highest key and the count."""
        row = await self.database.fetchrow(*self.conditions.put(SQL.items_last, self.container_id))
        if row is None:
            return None
        total = await self.database.fetchval(
            *self.conditions.put(SQL.items_count, self.container_id)
        )
        return SourceBounds((row["pk"], row["id"]), total)

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[BulkRow]:
        """Return the items after a key."""
        records = await self.database.fetch(
            *self.conditions.put(
                SQL.items_after, self.container_id, *(after or ("", "")), *highest, rows
            )
        )
        return [
            BulkRow((one["pk"], one["id"]), one["id"], msgspec.json.decode(one["body"]))
            for one in records
        ]


class JobSource(Struct, frozen=True):
    """Jobs, except the bulk job itself and the next run of its series."""

    database: Database
    own: UUID
    series: UUID | None
    conditions: RowConditions

    async def bounds(self) -> SourceBounds | None:
        """Return the highest key and the count."""
        row = await self.database.fetchrow(
            *self.conditions.put(SQL.jobs_last, self.own, self.series)
        )
        if row is None:
            return None
        total = await self.database.fetchval(
            *self.conditions.put(SQL.jobs_count, self.own, self.series)
        )
        return SourceBounds((str(row["id"]),), total)

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[BulkRow]:
        """Return the jobs after a key."""
        low = UUID(int=0) if after is None else UUID(after[0])
        records = await self.database.fetch(
            *self.conditions.put(SQL.jobs_after, self.own, self.series, low, UUID(highest[0]), rows)
        )
        return [BulkRow((str(one["id"]),), str(one["id"]), dict(one)) for one in records]


class ImportSource(Struct, frozen=True):
    """Rows of an import without an error, or only those that became items."""

    database: Database
    id: UUID
    low: int = FIRST
    high: int = LAST
    written: bool = False

    async def bounds(self) -> SourceBounds | None:
        """Return the highest key and the count."""
        row = await self.database.fetchrow(
            SQL.import_rows_bounds, self.id, self.low, self.high, self.written
        )
        assert row is not None
        return None if row["number"] is None else SourceBounds((row["number"],), row["total"])

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[BulkRow]:
        """Return the rows after a number."""
        low = self.low - 1 if after is None else after[0]
        records = await self.database.fetch(
            SQL.import_rows_after, self.id, self.written, low, highest[0], rows
        )
        return [
            BulkRow(
                (one["number"],), str(one["number"]),
                {name: _decoded(one[name]) for name in ("raw", "item")},
            )
            for one in records
        ]  # fmt: skip


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


async def opened(
    database: Database,
    row_query: RowQuery,
    own: OwnJob,
    registry: PipelineRegistry | None,
    asker: Asker,
) -> ItemSource | JobSource | ImportSource:
    """Return the source of a query; `own` is the job that reads it."""
    if row_query.imported is not None:
        low = FIRST if row_query.low is None else row_query.low
        high = LAST if row_query.high is None else row_query.high
        return ImportSource(database, row_query.imported, low, high, written=row_query.low is None)
    planned = await cpu.off_loop(plan, row_query, registry, asker) if row_query.is_planned else None
    if row_query.of_jobs:
        bare = planned is None and not row_query.names_states
        where = (*row_query.where, _COMPLETED) if bare else row_query.where
        chosen = RowConditions(where=where, alias="j", body=_JOB, planned=planned)
        return JobSource(database, own.id, own.series, chosen)
    table = table_of(registry, row_query)
    name = row_query.container or (table.container.name if table else "")
    container = await lifecycle.find(database, name)
    if container is None:
        raise NotFound(f"there is no container or table {name or row_query.table!r}")
    chosen = RowConditions(where=row_query.where, alias="i", body="i.body", planned=planned)
    return ItemSource(
        database, name, container.info.id, chosen, None if table is None else table.name
    )


def plan(row_query: RowQuery, registry: PipelineRegistry | None, asker: Asker) -> Planned | None:
    """Return the conditions of a query over columns; None if it has none.

    Raises `InvalidQuery` if its rows are not those of a table of this app.
    """
    if not row_query.is_planned:
        return None
    table = JOBS.name
    if not row_query.of_jobs:
        registered = table_of(registry, row_query)
        if registered is None:
            raise InvalidQuery(
                f"{row_query.container or row_query.table!r} is not a table of this app, so it"
                " has no columns; select its rows with `where`, or register it with app.table"
            )
        table = registered.name
    return conditions.planned(row_query, conditions.catalogue(registry), table, asker)


async def asker_of(
    database: Database, owner: UUID | None, row_query: RowQuery, now: datetime
) -> Asker:
    """Return the user and the time that the conditions of a job refer to."""
    row = (
        await database.fetchrow(SQL.owner_facts, owner or SYSTEM) if row_query.is_planned else None
    )
    facts: dict[str, Any] = {} if row is None else {**row, "teams": tuple(row["teams"])}
    caller = Caller(user_id=owner or SYSTEM, scope=row_query.scope, may_read_payload=True, **facts)
    return Asker(caller, now)


def table_of(registry: PipelineRegistry | None, row_query: RowQuery) -> Table | None:
    """Return the pipeline table of a query; None if it has none."""
    tables = {} if registry is None else registry.tables
    for table in tables.values():
        if (
            row_query.table in (table.name, table.set_name)
            or row_query.container == table.container.name
        ):
            return table
    return None
