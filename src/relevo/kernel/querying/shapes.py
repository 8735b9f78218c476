"""The result of a planned statement: the meaning of each cell of a row."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from relevo.kernel.expressions.to_sql import SqlType
from relevo.kernel.querying.catalogue import Column, Table

FOLLOWED: Final = "followed"


class Field(Struct, frozen=True, kw_only=True):
    """A value of the answer."""

    name: str
    """In the answer: `_ownerid_value`, or an alias."""
    cell: str
    """In the row."""
    table: Table | None = None
    column: Column | None = None
    """Its column, which decides its format; None for a computed value."""
    target_cell: str | None = None
    """Which cell has the logical name of the table that a lookup points into."""
    name_cell: str | None = None
    """Which cell has the name of the row that a lookup points at."""


class SortKey(Struct, frozen=True, kw_only=True):
    """One of the values by which rows are sorted; together they are never equal in two rows."""

    cell: str
    type: SqlType
    name: str
    """The column path, or the alias, that it comes from, with dots."""
    descending: bool = False
    required: bool = False
    """Never null."""


class Nested(Struct, frozen=True, kw_only=True):
    """Rows inside a row: JSON, `null` or one object, or a list of them."""

    name: str
    cell: str
    collection: bool
    shape: Shape


class Shape(Struct, frozen=True, kw_only=True):
    """How the rows of a statement are read."""

    table: Table
    fields: tuple[Field, ...]
    nested: tuple[Nested, ...] = ()
    key_cell: str | None = None
    version_cell: str | None = None
    sort: tuple[SortKey, ...] = ()
    rows_max: int | None = None
    """How many rows the page has at most; the statement gives one more if there are more."""
    bytes_max: int | None = None
    """How many bytes it has at most, but for one row; then the cell `FOLLOWED` says of each row
    whether there is one behind it."""
    taken: int = 0
    """How many rows the pages before had."""
    input_cell: str | None = None
    """Which cell says how many rows went into all groups."""
    input_max: int | None = None
    """More than so many are refused."""


class Statement(Struct, frozen=True):
    """SQL for PostgreSQL, the values of `$1`, `$2` …, and the shape of its result."""

    sql: str
    parameters: tuple[Any, ...]
    shape: Shape
