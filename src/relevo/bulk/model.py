"""Which rows a bulk operation is about, and how far it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.store import query

if TYPE_CHECKING:
    from collections.abc import Sequence

JOBS: Final = ("asyncoperation", "asyncoperations")
"""The jobs themselves, as a table."""
CHUNK_ROWS: Final = 200
STATES: Final = frozenset({"statecode", "statuscode"})


class RowQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a container, of a table of the pipeline, of the jobs, or of an import.

    Conditions are those of `relevo.store.query`, (path, operator, value), and all must hold. For
    jobs the paths are logical names such as `statuscode` and `createdon`.

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
        where = tuple(_condition(one) for one in self.where)
        query.conditions(where, lambda *_: "")  # what no run could ask is refused now
        return RowQuery(
            container=self.container, table=self.table, imported=self.imported, low=self.low,
            high=self.high, where=where,
        )  # fmt: skip


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
    after: tuple[Any, ...] | None = None
    highest: tuple[Any, ...] | None = None
    total: int = 0
    done: int = 0
    """Of this query."""
    success: int = 0
    failure: int = 0


class MatchField(Struct, frozen=True, kw_only=True):
    """A field by which items are duplicates: as it is, in one case, or its first characters."""

    path: str
    fold: bool = True
    first: int | None = None
