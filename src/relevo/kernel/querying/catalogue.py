"""The tables and columns that queries can speak of: every identifier that reaches SQL stands here.

A catalogue is written by the part that owns the tables; what a client sends only chooses from it.
SQL in it is a template over the alias of its table, written `{t}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Literal

from msgspec import Struct, field

from relevo.kernel.expressions.to_sql import SqlType

ColumnType = Literal[
    "guid",
    "text",
    "memo",
    "int",
    "bigint",
    "float",
    "bool",
    "datetime",
    "choice",
    "lookup",
    "json",
]

Labels = Mapping[int, Mapping[str, str]]
"""Texts for people by number and language (`en`, `es`)."""

YES_NO: Final[Labels] = {0: {"en": "No", "es": "No"}, 1: {"en": "Yes", "es": "Sí"}}

_SQL_TYPES: Final[Mapping[ColumnType, SqlType]] = {
    "guid": "uuid",
    "text": "text",
    "memo": "text",
    "int": "bigint",
    "bigint": "bigint",
    "float": "float8",
    "bool": "boolean",
    "datetime": "timestamptz",
    "choice": "bigint",
    "lookup": "uuid",
    "json": "text",
}


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table, as clients name it and as SQL computes it."""

    name: str
    """Logical name, lower case: `ownerid`."""
    type: ColumnType
    sql: str = ""
    """Template over the alias `{t}`; empty for a column of the same name. It can stand anywhere:
    a name, a call or in parentheses. Whole numbers may be of any width."""
    stored: SqlType | None = None
    """What `sql` gives, if it is not the usual for the type: `text` for a lookup kept as text."""
    labels: Labels = {}
    """Of choices, and of booleans that are not just yes and no."""
    targets: tuple[str, ...] = ()
    """Logical names of the tables that a lookup can point into, the usual one first."""
    target: str = ""
    """Template that gives the logical name of the table a lookup points into, in this row; needed
    if there are several."""
    required: bool = False
    """Never null, so that plain indexes serve its order."""
    payload: bool = False
    """Null for callers without the privilege, who cannot filter, order or group by it."""
    filterable: bool = True
    """Whether filters, orders and groups may name it."""
    key_of: str = ""
    """Logical name of the table of whose rows it tells keys: only of those that the caller may see
   . What is `filterable` tells none."""
    key_source: str = ""
    """What SQL reads those rows from, if it is less than the source of that table."""

    @property
    def wire(self) -> str:
        """The name of the property in OData: `_ownerid_value` for a lookup."""
        return f"_{self.name}_value" if self.type == "lookup" else self.name

    @property
    def sql_type(self) -> SqlType:
        """The type of the SQL expression."""
        return self.stored or _SQL_TYPES[self.type]

    def of(self, alias: str) -> str:
        """Return the SQL expression of the column of a table under an alias of ours."""
        return (self.sql or f"{{t}}.{self.name}").replace("{t}", alias)

    def label(self, value: int, language: str) -> str | None:
        """Return the text for a choice or boolean; English if the language has none."""
        labels = self.labels or (YES_NO if self.type == "bool" else {})
        texts = labels.get(int(value), {})
        return texts.get(language) or texts.get("en")


class Navigation(Struct, frozen=True, kw_only=True):
    """A way from a row to the one row, or the rows, that it is related to."""

    name: str
    table: str
    """Logical name of the table it leads to."""
    column: str
    """Logical name of the column on this side: the lookup, or the key if collection-valued."""
    target_column: str
    """Logical name of the column on the other side: the key, or the lookup."""
    collection: bool = False


class Table(Struct, frozen=True, kw_only=True, dict=True):
    """A table that queries can read."""

    name: str
    """Logical name: `asyncoperation`."""
    set_name: str
    """Entity set name, as in the path: `asyncoperations`."""
    schema_name: str
    key: str
    primary_name: str
    """Logical name of the column that people know a row by; lookups sort by it."""
    columns: tuple[Column, ...]
    source: str
    """The source in SQL: a table, a view or a query in parentheses."""
    navigations: tuple[Navigation, ...] = ()
    owner: str | None = None
    """Logical name of the column that scope `own` looks at; None if all may read all rows."""
    unit: str | None = None
    """Logical name of the column that scope `unit` looks at."""
    version: str | None = None
    """Logical name of the column that feeds `@odata.etag`."""
    sources_by_state: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Narrower sources with the same columns, by logical column name and value: read instead of
    `source` if the filter fixes that column to values that all have the same one."""
    by_keys: str = ""
    """Template over `{keys}`, a uuid[]: read instead of `source` if the filter says which rows."""

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by logical name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def by_wire(self) -> Mapping[str, Column]:
        """Columns by the name of their property in OData."""
        return {column.wire: column for column in self.columns}

    @cached_property
    def navigation_by_name(self) -> Mapping[str, Navigation]:
        """Navigations by name."""
        return {navigation.name: navigation for navigation in self.navigations}


def are_tied(one: Table, column: Column, other: Table, other_column: Column) -> bool:
    """Whether two tables belong together by these columns: rows of one by the key of the other.

    Any other pair, such as two statuses, would tie every row to very many.
    """
    ends = (one, column, other, other_column), (other, other_column, one, column)
    for near, its, far, key in ends:
        if key.name == far.key and its.type in ("guid", "lookup"):
            return True
        for way in near.navigations:
            if (way.table, way.column, way.target_column) == (far.name, its.name, key.name):
                return True
    return False


class Catalogue(Struct, frozen=True, dict=True):
    """The tables that are served."""

    tables: tuple[Table, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Table]:
        """Tables by logical name."""
        return {table.name: table for table in self.tables}

    @cached_property
    def by_set(self) -> Mapping[str, Table]:
        """Tables by entity set name."""
        return {table.set_name: table for table in self.tables}
