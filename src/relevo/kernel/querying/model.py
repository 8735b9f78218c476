"""The query model that OData, FetchXML and Python code are read into.

Filters are trees of `core.expressions` under `RULES`: folded case, three-valued nulls. In them
`Name(column)` is a column of the table at hand (root, link, expand), `Member(Name(x), (column,))`
one of the link with alias `x` or, if there is none, of the row behind the single-valued navigation
`x` (further navigations go on in the path), and `related(alias)` whether a link of kind `any`,
`not any`, `all` or `not all` holds. Columns always stand under their logical names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from msgspec import Struct

from relevo.kernel.expressions.tree import Expression, Member, Name, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES: Final = Rules(nulls="unknown", case="folded", mixed="unknown")
"""Case does not matter, what is compared with null is null; front ends refuse mixed types."""

Path = tuple[str, ...]
"""A column by logical names: `(column,)`, `(link alias, column)` or `(navigation, …, column)`."""

Aggregate = Literal["count", "countcolumn", "sum", "min", "max", "avg"]
DateGrouping = Literal["day", "week", "month", "quarter", "year"]
LinkKind = Literal["inner", "outer", "exists", "in", "first", "any", "not any", "all", "not all"]
Scope = Literal["own", "unit", "all"]

CONDITIONAL: Final[frozenset[LinkKind]] = frozenset({"any", "not any", "all", "not all"})
"""Kinds of links that stand inside filters, by `related`."""
JOINED: Final[frozenset[LinkKind]] = frozenset({"inner", "outer", "first"})
"""Kinds of links whose columns can be selected, filtered and ordered by."""


class Caller(Struct, frozen=True, kw_only=True):
    """The caller of a query: its rights and preferences."""

    user_id: UUID
    unit: UUID | None = None
    """Its business unit."""
    scope: Scope = "own"
    teams: tuple[UUID, ...] = ()
    may_read_payload: bool = False
    language: str = "en"
    zone: str = "UTC"
    """IANA name of its time zone, which decides "today"."""


class Item(Struct, frozen=True, kw_only=True):
    """Something that is selected: a column, a group or an aggregate."""

    path: Path = ()
    """Empty for `count` of rows."""
    alias: str | None = None
    """Name in the answer; None for the column's own."""
    aggregate: Aggregate | None = None
    distinct: bool = False
    """With `countcolumn`: counts different values."""
    groupby: bool = False
    date_grouping: DateGrouping | None = None
    """The part of the date, as a number: day of month, ISO week, month, quarter, year."""
    user_zone: bool = True
    """Whether the date is taken in the caller's time zone, else UTC."""


class Order(Struct, frozen=True, kw_only=True):
    """A sort order: a column, or in queries with aggregates the alias of an item."""

    path: Path = ()
    alias: str | None = None
    descending: bool = False
    by_label: bool = False
    """Choices by their text in the caller's language instead of their number. Lookups always sort
    by the name of the row that they point at."""


class Link(Struct, frozen=True, kw_only=True):
    """Related rows of another table, joined or tested for."""

    table: str
    """Logical name."""
    alias: str
    """Unique in the query."""
    column: str
    """Of this table (FetchXML's `from`)."""
    parent_column: str
    """Of the row that the link hangs on (FetchXML's `to`)."""
    kind: LinkKind = "inner"
    items: tuple[Item, ...] = ()
    """Paths start at this table: `(column,)`."""
    filter: Expression | None = None
    orders: tuple[Order, ...] = ()
    """They follow those of the row that the link hangs on; those of a `first` link choose it."""
    links: tuple[Link, ...] = ()


class Expand(Struct, frozen=True, kw_only=True):
    """Related rows that the answer has inside the row; of a collection with its own conditions."""

    navigation: str
    items: tuple[Item, ...] = ()
    """None: every column."""
    filter: Expression | None = None
    links: tuple[Link, ...] = ()
    """Those that the filter tests for."""
    orders: tuple[Order, ...] = ()
    top: int | None = None
    expands: tuple[Expand, ...] = ()


class Position(Struct, frozen=True):
    """Where the last page ended."""

    values: tuple[Any, ...]
    """Of the sort keys of the last row, as `Shape.sort` types them."""
    taken: int = 0
    """How many rows the pages so far had."""


class Query(Struct, frozen=True, kw_only=True):
    """A query of a table."""

    table: str
    """Logical name."""
    items: tuple[Item, ...] = ()
    """None: every column; the key comes in any case, except with `aggregate` and `distinct`."""
    filter: Expression | None = None
    orders: tuple[Order, ...] = ()
    """The key is appended, or what else makes the order total."""
    links: tuple[Link, ...] = ()
    expands: tuple[Expand, ...] = ()
    top: int | None = None
    """How many rows all pages together have at most."""
    page_size: int | None = None
    """None: the largest."""
    count: bool = False
    """Whether the number of all rows is asked for too."""
    distinct: bool = False
    aggregate: bool = False
    """Rows are groups; every item is a group or an aggregate."""
    aggregate_limit: int | None = None
    """How many rows may go into the groups at most; None: the largest."""
    position: Position | None = None
    """Rows behind it only."""
    page: int = 1
    """Without position: which page of `page_size` rows is meant, from 1."""


def column(*path: str) -> Name | Member:
    """Return the node for a column path: `column("name")`, `column("owninguser", "fullname")`."""
    return Name(path[0]) if len(path) == 1 else Member(Name(path[0]), path[1:])


def related(alias: str) -> Name:
    """Return the condition that the link with this alias (of a kind in `CONDITIONAL`) holds."""
    return Name(f"{_RELATED}{alias}")


def related_alias(name: str) -> str | None:
    """Return the alias if a name was made by `related`."""
    return name.removeprefix(_RELATED) if name.startswith(_RELATED) else None


_RELATED: Final = "link "
"""No logical name has a space."""


def all_links(links: tuple[Link, ...]) -> Iterator[Link]:
    """Yield links and those that hang on them, in the order in which they are written."""
    for link in links:
        yield link
        yield from all_links(link.links)
