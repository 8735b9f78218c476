"""The types of bulk operations: queries for rows, rows, failures, progress."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from relevo.errors import InvalidValue
from relevo.kernel.querying.model import Scope
from relevo.store import query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relevo.dataverse.bulk.import_files import Format

JOBS: Final = ("asyncoperation", "asyncoperations")
"""Names of the table of jobs."""
CHUNK_ROWS: Final = 200
STATES: Final = frozenset({"statecode", "statuscode"})


class ImportArguments(TypedDict, total=False):
    """How a file becomes items, as `ImportOptions` explains it."""

    format: Format
    encoding: str
    delimiter: str
    columns: dict[str, str] | None
    defaults: dict[str, Any]
    kind: str


class Criterion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on a column, by an operator of FetchXML: `eq`, `like`, `olderthan-x-days` …"""

    column: str
    operator: str
    values: tuple[str, ...] = ()
    against_column: bool = False
    """Whether the value is the name of another column."""


class Criteria(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions and nested groups, of which all or any must hold; an empty group always holds."""

    any: bool = False
    tests: tuple[Criterion, ...] = ()
    groups: tuple[Criteria, ...] = ()


class RowQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a container, of a table of the pipeline, of the jobs, or of an import.

    `where` has the conditions of `relevo.store.query`, (path, operator, value), for jobs over
    logical names such as `statuscode`. Rows of tables can also be chosen by `filter`, text as in
    OData's `$filter`, and by `criteria`; relative conditions in these, such as the last 30 days,
    refer to the start of each run. All given conditions must hold.

    >>> RowQuery(table="asyncoperation", where=(("statuscode", "=", 31),)).names_states
    True
    """

    container: str | None = None
    table: str | None = None
    imported: UUID | None = None
    low: int | None = None
    """The first row number of an import."""
    high: int | None = None
    """The last row number of an import."""
    where: tuple[tuple[str, str, Any], ...] = ()
    filter: str | None = None
    criteria: Criteria | None = None
    query: dict[str, Any] | None = None
    """A `relevo.kernel.querying` query, encoded by `relevo.dataverse.bulk.stored_queries`."""
    scope: Scope = "all"
    """Which rows of other tables its conditions may read."""
    reach: Scope = "all"
    """Whose jobs it finds, relative to the owner of the bulk job."""
    by_key: bool = False
    """Whether it was submitted with a key: its owner's keys limit each run when it begins."""

    @property
    def is_planned(self) -> bool:
        """Whether it has conditions over the columns of a table."""
        conditions = (self.filter, self.criteria, self.query)
        return conditions != (None, None, None) or (self.of_jobs and self.reach != "all")

    @property
    def of_jobs(self) -> bool:
        """Whether it selects jobs."""
        return self.table in JOBS

    @property
    def names_states(self) -> bool:
        """Whether `where` names a state column of jobs."""
        return any(path.lstrip("/") in STATES for path, _, _ in self.where)

    def checked(self) -> RowQuery:
        """Return the query as it is stored; raises `InvalidValue`."""
        named = [one for one in (self.container, self.table, self.imported) if one is not None]
        if len(named) != 1:
            raise InvalidValue(
                "a query names one of container, table and import", pointer="queries"
            )
        if self.imported is not None and self.is_planned:
            raise InvalidValue("rows of an import have no columns to filter by", pointer="queries")
        where = tuple(_condition(one) for one in self.where)
        query.conditions(where, lambda *_: "")  # refuses conditions that no run could use
        return replace(self, where=where)


def _condition(given: Sequence[Any]) -> tuple[str, str, Any]:
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise InvalidValue(f"a condition is (path, operator, value), not {given!r}")
    path, operator, value = given
    many = isinstance(value, tuple | list | set | frozenset)
    return path, operator, [_value(one) for one in value] if many else _value(value)


def _value(value: Any) -> Any:
    """Return a value as JSON; instants as text of one form, so that they compare."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{value.isoformat()} has no time zone; add one, such as tzinfo=UTC")
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value) if isinstance(value, UUID) else value


class BulkRow(Struct, frozen=True):
    """A row to process; failures are recorded under its `id`."""

    key: tuple[Any, ...]
    id: str
    body: Any


class RowFailure(Struct, frozen=True):
    """A row that could not be processed."""

    row_id: str
    code: int
    message: str


class RecordedFailure(Struct, frozen=True, kw_only=True):
    """A recorded failure: also with the index of its query, and the time."""

    id: UUID
    row_id: str
    query_index: int
    code: int
    message: str
    at: datetime


class Preview(Struct, frozen=True):
    """How many rows a query finds now, and the first of them."""

    count: int
    sample: tuple[BulkRow, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a bulk job, stored with each chunk."""

    query: int = 0
    since: datetime | None = None
    """When the query began; its relative dates refer to this."""
    after: tuple[Any, ...] | None = None
    highest: tuple[Any, ...] | None = None
    total: int = 0
    done: int = 0
    """Rows of this query that were processed."""
    success: int = 0
    failure: int = 0


class ChildTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parameters of a child job: one query of its parent."""

    parent: UUID
    index: int
    query: RowQuery
    series: UUID | None = None
    """The series of the parent."""
    max_failures: int | None = None
    failures_before: int = 0
    """The number of failed rows of earlier queries."""


class MatchField(Struct, frozen=True, kw_only=True):
    """A field that duplicates share: exact, without regard to case, or its first characters."""

    path: str
    fold: bool = True
    first: int | None = None
