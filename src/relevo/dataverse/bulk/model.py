"""Which rows a bulk operation is about, and how far it is."""

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

    from relevo.dataverse.bulk.parsing import Format

JOBS: Final = ("asyncoperation", "asyncoperations")
"""The jobs themselves, as a table."""
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
    """Conditions and groups of them: all must hold, or any; empty groups demand nothing."""

    any: bool = False
    tests: tuple[Criterion, ...] = ()
    groups: tuple[Criteria, ...] = ()


class RowQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a container, of a table of the pipeline, of the jobs, or of an import.

    `where` has the conditions of `relevo.store.query`, (path, operator, value), for jobs over
    logical names such as `statuscode`. Rows of tables can also be chosen by `filter`, text as in
    OData's `$filter`, and by `criteria`; what is relative in these, such as the last 30 days, is
    meant at the start of each run. Everything that is given must hold.

    >>> RowQuery(table="asyncoperation", where=(("statuscode", "=", 31),)).names_states
    True
    """

    container: str | None = None
    table: str | None = None
    imported: UUID | None = None
    low: int | None = None
    """Of an import: its rows from this number on,"""
    high: int | None = None
    """and up to this one."""
    where: tuple[tuple[str, str, Any], ...] = ()
    filter: str | None = None
    criteria: Criteria | None = None
    query: dict[str, Any] | None = None
    """A `relevo.kernel.querying` query as `relevo.dataverse.bulk.stored` writes it."""
    scope: Scope = "all"
    """Which rows of other tables its conditions may look at."""
    reach: Scope = "all"
    """Whose jobs are found, seen from the owner of the job that asks."""
    by_key: bool = False
    """Whether it was asked for with a key: each run needs what its owner's keys allow by then."""

    @property
    def is_planned(self) -> bool:
        """Whether it has conditions over the columns of a table."""
        conditions = (self.filter, self.criteria, self.query)
        return conditions != (None, None, None) or (self.of_jobs and self.reach != "all")

    @property
    def of_jobs(self) -> bool:
        """Whether it is about jobs."""
        return self.table in JOBS

    @property
    def names_states(self) -> bool:
        """Whether it says which states of jobs it means."""
        return any(path.lstrip("/") in STATES for path, _, _ in self.where)

    def checked(self) -> RowQuery:
        """Return it as it is stored, or refuse it by name."""
        named = [one for one in (self.container, self.table, self.imported) if one is not None]
        if len(named) != 1:
            raise InvalidValue("a query names a container, a table or an import", pointer="queries")
        if self.imported is not None and self.is_planned:
            raise InvalidValue("rows of an import have no columns to choose by", pointer="queries")
        where = tuple(_condition(one) for one in self.where)
        query.conditions(where, lambda *_: "")  # what no run could ask is refused now
        return replace(self, where=where)


def _condition(given: Sequence[Any]) -> tuple[str, str, Any]:
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise InvalidValue(f"a condition is (path, operator, value), not {given!r}")
    path, operator, value = given
    many = isinstance(value, tuple | list | set | frozenset)
    return path, operator, [_value(one) for one in value] if many else _value(value)


def _value(value: Any) -> Any:
    """Instants compare as text of one form; other values as JSON does."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{value.isoformat()} has no offset; say which zone it is in")
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value) if isinstance(value, UUID) else value


class Row(Struct, frozen=True):
    """A row to be processed; `id` is what a failure is recorded under."""

    key: tuple[Any, ...]
    id: str
    body: Any


class RowFailure(Struct, frozen=True):
    """A row that could not be processed."""

    row_id: str
    code: int
    message: str


class RecordedFailure(Struct, frozen=True, kw_only=True):
    """The same as it was written down: also of which query, and when."""

    id: UUID
    row_id: str
    query_index: int
    code: int
    message: str
    at: datetime


class Preview(Struct, frozen=True):
    """How many rows a query finds now, and the first of them."""

    count: int
    sample: tuple[Row, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """How far a bulk job is: what it stores with each chunk."""

    query: int = 0
    since: datetime | None = None
    """When the query began: what its relative dates mean."""
    after: tuple[Any, ...] | None = None
    highest: tuple[Any, ...] | None = None
    total: int = 0
    done: int = 0
    """Of this query."""
    success: int = 0
    failure: int = 0


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child of a bulk delete is asked for: one query of the ordered set."""

    parent: UUID
    index: int
    query: RowQuery
    series: UUID | None = None
    """That of the parent."""
    max_failures: int | None = None
    failures_before: int = 0
    """How many rows of former queries failed."""


class MatchField(Struct, frozen=True, kw_only=True):
    """A field by which items are duplicates: as it is, in one case, or its first characters."""

    path: str
    fold: bool = True
    first: int | None = None
