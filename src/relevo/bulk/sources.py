"""Where rows come from: each source has a highest key, a count, and pages behind a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.bulk.model import Row, RowQuery
from relevo.errors import NotFound
from relevo.postgres import Database, catalog
from relevo.store import lifecycle, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.jobs.running.claims import Claim
    from relevo.pipeline.registry import Registry
    from relevo.pipeline.tables import Table

SQL = catalog.load("relevo.bulk")
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
"""A job as the JSON that conditions look at."""
_COMPLETED: Final = ("statecode", "=", 3)
_NOBODY: Final = UUID(int=0)
JOB_COLUMNS: Final = frozenset(_COLUMNS)
"""What conditions on jobs may name."""


class Bounds(Struct, frozen=True):
    """The highest key of a source, and how many rows there are up to it."""

    highest: tuple[Any, ...]
    total: int


class Source(Protocol):
    """Rows in the order of their keys."""

    async def bounds(self) -> Bounds | None:
        """Return what there is; None if there is nothing."""

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[Row]:
        """Return rows behind a key, up to another."""


class _Conditions:
    """Conditions as SQL whose parameters follow those of the statement."""

    def __init__(self, where: Sequence[Any], body: str) -> None:
        self._where = where
        self._body = body

    def put(self, sql: str, *arguments: Any) -> tuple[Any, ...]:
        """Return a statement with the conditions in it, and all its arguments."""
        values = list(arguments)

        def bound(value: Any, kind: str) -> str:
            values.append(value)
            return f"${len(values)}::{kind}"

        if not self._where:
            return sql, *values
        return sql.replace("(true)", query.conditions(self._where, bound, self._body)), *values


class Items(Struct, frozen=True):
    """Items of a container; `table` if they are records of the pipeline."""

    database: Database
    container: str
    container_id: int
    conditions: Any
    table: str | None = None

    async def bounds(self) -> Bounds | None:
        """Return what there is."""
        row = await self.database.fetchrow(*self.conditions.put(SQL.items_last, self.container_id))
        if row is None:
            return None
        total = await self.database.fetchval(
            *self.conditions.put(SQL.items_count, self.container_id)
        )
        return Bounds((row["pk"], row["id"]), total)

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[Row]:
        """Return items behind a key."""
        found = await self.database.fetch(
            *self.conditions.put(
                SQL.items_after, self.container_id, *(after or ("", "")), *highest, rows
            )
        )
        return [
            Row((one["pk"], one["id"]), one["id"], msgspec.json.decode(one["body"]))
            for one in found
        ]


class Jobs(Struct, frozen=True):
    """Jobs, but for the one that asks and, if it recurs, its next run."""

    database: Database
    own: UUID
    series: UUID | None
    conditions: Any

    async def bounds(self) -> Bounds | None:
        """Return what there is."""
        row = await self.database.fetchrow(
            *self.conditions.put(SQL.jobs_last, self.own, self.series)
        )
        if row is None:
            return None
        total = await self.database.fetchval(
            *self.conditions.put(SQL.jobs_count, self.own, self.series)
        )
        return Bounds((str(row["id"]),), total)

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[Row]:
        """Return jobs behind a key."""
        low = UUID(int=0) if after is None else UUID(after[0])
        found = await self.database.fetch(
            *self.conditions.put(SQL.jobs_after, self.own, self.series, low, UUID(highest[0]), rows)
        )
        return [Row((str(one["id"]),), str(one["id"]), dict(one)) for one in found]


class ImportRows(Struct, frozen=True):
    """Rows of an import: all that have no error, or those that became items."""

    database: Database
    id: UUID
    low: int = FIRST
    high: int = LAST
    written: bool = False

    async def bounds(self) -> Bounds | None:
        """Return what there is."""
        row = await self.database.fetchrow(
            SQL.import_rows_bounds, self.id, self.low, self.high, self.written
        )
        assert row is not None
        return None if row["number"] is None else Bounds((row["number"],), row["total"])

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[Row]:
        """Return rows behind a number."""
        low = self.low - 1 if after is None else after[0]
        found = await self.database.fetch(
            SQL.import_rows_after, self.id, self.written, low, highest[0], rows
        )
        return [
            Row(
                (one["number"],), str(one["number"]),
                {name: _decoded(one[name]) for name in ("raw", "item")},
            )
            for one in found
        ]  # fmt: skip


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


async def opened(
    database: Database, asked: RowQuery, own: Claim | None, registry: Registry | None
) -> Items | Jobs | ImportRows:
    """Return the source that a query means; `own` is the job that asks, if one does."""
    if asked.imported is not None:
        low = FIRST if asked.low is None else asked.low
        high = LAST if asked.high is None else asked.high
        return ImportRows(database, asked.imported, low, high, written=asked.low is None)
    if asked.of_jobs:
        where = asked.where if asked.names_states else (*asked.where, _COMPLETED)
        me, series = (_NOBODY, None) if own is None else (own.id, own.series)
        return Jobs(database, me, series, _Conditions(where, _JOB))
    table = table_of(registry, asked)
    name = asked.container or (table.container.name if table else "")
    found = await lifecycle.find(database, name)
    if found is None:
        raise NotFound(f"there is no container or table {name or asked.table!r}")
    return Items(
        database, name, found.info.id, _Conditions(asked.where, "i.body"),
        None if table is None else table.name,
    )  # fmt: skip


def table_of(registry: Registry | None, asked: RowQuery) -> Table | None:
    """Return the table of the pipeline that a query is about, if there is one."""
    tables = {} if registry is None else registry.tables
    for one in tables.values():
        if asked.table in (one.name, one.set_name) or asked.container == one.container.name:
            return one
    return None
