"""Where rows come from: each source has a highest key, a count, and pages behind a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.dataverse.bulk import conditions
from relevo.dataverse.bulk.conditions import Conditions
from relevo.dataverse.bulk.model import Row, RowQuery
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
    from relevo.pipeline.registry import Registry
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
"""A job as the JSON that conditions look at."""
_COMPLETED: Final = ("statecode", "=", 3)
JOB_COLUMNS: Final = frozenset(_COLUMNS)
"""What conditions on jobs may name."""


class Bounds(Struct, frozen=True):
    """The highest key of a source, and how many rows there are up to it."""

    highest: tuple[Any, ...]
    total: int


class Own(Struct, frozen=True):
    """The job that a source is read for, and its series: it never finds these among jobs."""

    id: UUID = UUID(int=0)
    series: UUID | None = None


class Source(Protocol):
    """Rows in the order of their keys."""

    async def bounds(self) -> Bounds | None:
        """Return what there is; None if there is nothing."""

    async def page(
        self, after: Sequence[Any] | None, highest: Sequence[Any], rows: int
    ) -> list[Row]:
        """Return rows behind a key, up to another."""


class Items(Struct, frozen=True):
    """Items of a container; `table` if they are records of the pipeline."""

    database: Database
    container: str
    container_id: int
    conditions: Conditions
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
    conditions: Conditions

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
    database: Database, asked: RowQuery, own: Own, registry: Registry | None, asker: Asker
) -> Items | Jobs | ImportRows:
    """Return the source that a query means; `own` is the job that it is read for."""
    if asked.imported is not None:
        low = FIRST if asked.low is None else asked.low
        high = LAST if asked.high is None else asked.high
        return ImportRows(database, asked.imported, low, high, written=asked.low is None)
    planned = await cpu.off_loop(plan, asked, registry, asker) if asked.is_planned else None
    if asked.of_jobs:
        bare = planned is None and not asked.names_states
        where = (*asked.where, _COMPLETED) if bare else asked.where
        chosen = Conditions(where=where, alias="j", body=_JOB, planned=planned)
        return Jobs(database, own.id, own.series, chosen)
    table = table_of(registry, asked)
    name = asked.container or (table.container.name if table else "")
    found = await lifecycle.find(database, name)
    if found is None:
        raise NotFound(f"there is no container or table {name or asked.table!r}")
    chosen = Conditions(where=asked.where, alias="i", body="i.body", planned=planned)
    return Items(database, name, found.info.id, chosen, None if table is None else table.name)


def plan(asked: RowQuery, registry: Registry | None, asker: Asker) -> Planned | None:
    """Return the conditions of a query over columns, None if it has none.

    Raises `InvalidQuery` for what is no table, or not one of this app.
    """
    if not asked.is_planned:
        return None
    table = JOBS.name
    if not asked.of_jobs:
        found = table_of(registry, asked)
        if found is None:
            raise InvalidQuery(
                f"{asked.container or asked.table!r} is no table of this app, so it has no columns;"
                " choose its rows by `where`, or register it with app.table"
            )
        table = found.name
    return conditions.planned(asked, conditions.catalogue(registry), table, asker)


async def acting(database: Database, owner: UUID | None, asked: RowQuery, now: datetime) -> Asker:
    """Return what conditions of a job mean by its owner, and by now."""
    row = await database.fetchrow(SQL.acting, owner or SYSTEM) if asked.is_planned else None
    facts: dict[str, Any] = {} if row is None else {**row, "teams": tuple(row["teams"])}
    caller = Caller(user_id=owner or SYSTEM, scope=asked.scope, may_read_payload=True, **facts)
    return Asker(caller, now)


def table_of(registry: Registry | None, asked: RowQuery) -> Table | None:
    """Return the table of the pipeline that a query is about, if there is one."""
    tables = {} if registry is None else registry.tables
    for one in tables.values():
        if asked.table in (one.name, one.set_name) or asked.container == one.container.name:
            return one
    return None
