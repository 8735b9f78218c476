"""The result columns and orders of a FetchXML query: attributes, groups, aggregates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.kernel.querying.errors import AGGREGATE_ALIAS, IMPOSSIBLE
from relevo.kernel.querying.fetchxml.conditions import FetchScope
from relevo.kernel.querying.model import Aggregate, DateGrouping, Item, Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relevo.kernel.querying.catalogue import Column, ColumnType, Table
    from relevo.kernel.querying.fetchxml.elements import Element

_ALIAS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_NUMBERS: Final[frozenset[ColumnType]] = frozenset({"int", "bigint", "float"})
_MEASURES: Final[frozenset[ColumnType]] = _NUMBERS | {"datetime"}
_ALL: Final[frozenset[ColumnType]] = _MEASURES | {
    "guid", "text", "memo", "bool", "choice", "lookup", "json"
}  # fmt: skip
AGGREGATES: Final[dict[str, tuple[Aggregate, frozenset[ColumnType]]]] = {
    "avg": ("avg", _NUMBERS),
    "count": ("count", _ALL),
    "countcolumn": ("countcolumn", _ALL),
    "max": ("max", _MEASURES),
    "min": ("min", _MEASURES),
    "sum": ("sum", _NUMBERS),
}
"""With the columns that they can be taken of."""
DATE_GROUPINGS: Final[dict[str, DateGrouping]] = {
    "day": "day",
    "week": "week",
    "month": "month",
    "quarter": "quarter",
    "year": "year",
}


def claim(element: Element, alias: str, taken: set[str]) -> None:
    """Take an alias for an element; refuses what is no name, or taken."""
    if not _ALIAS.fullmatch(alias) or alias in taken:
        why = "stands there twice" if alias in taken else "is no name"
        raise element.refused(
            IMPOSSIBLE, f"the alias `{alias[:64]}` {why}. Use another, of letters and digits."
        )
    taken.add(alias)


class FetchItems:
    """The attributes and orders of a document; no two values of the answer have one name."""

    def __init__(self, root: Element, table: Table) -> None:
        self.aggregate: Final = root.flag("aggregate")
        self.by_number: Final = root.flag("useraworderby")
        (self.entity,) = root.children
        self.grouped: Final = {
            one.attributes["alias"] for one in _attributes(root) if "alias" in one.attributes
        }
        if self.aggregate and not self.grouped:
            raise root.refused(
                AGGREGATE_ALIAS,
                "an aggregate query needs attributes with an alias, to group by or to count. "
                "Add some.",
            )
        self.taken = set() if self.aggregate else _plain(self.entity, table)

    def shown(self, element: Element, table: Table) -> tuple[Item, ...]:
        """The selected columns of a table; none for every column of the query's own."""
        if element.every("all-attributes"):
            if self.aggregate:
                raise element.refused(
                    AGGREGATE_ALIAS, "an aggregate query cannot have <all-attributes>. Name some."
                )
            linked = element is not self.entity
            return tuple(Item(path=(column.name,)) for column in table.columns) if linked else ()
        found = [self._item(one, table) for one in element.every("attribute")]
        return tuple(dict.fromkeys(found))

    def _item(self, element: Element, table: Table) -> Item:
        path = FetchScope(table).path(element, element.needs("name"))
        alias = element.attributes.get("alias")
        if alias is not None:
            claim(element, alias, self.taken)
        if not self.aggregate:
            for key in ("aggregate", "groupby", "dategrouping"):
                if key in element.attributes:
                    raise element.refused(
                        IMPOSSIBLE, f'{key} needs aggregate="true" on <fetch>. Add it there.'
                    )
            return Item(path=path, alias=alias)
        if alias is None:
            raise element.refused(
                AGGREGATE_ALIAS, f"{path[0]} has no alias, which aggregate queries need. Add one."
            )
        return self._aggregated(element, FetchScope(table).column(path), alias)

    def _aggregated(self, element: Element, column: Column, alias: str) -> Item:
        grouped, distinct = element.flag("groupby"), element.flag("distinct")
        if grouped == ("aggregate" in element.attributes):
            raise element.refused(
                AGGREGATE_ALIAS,
                f"{column.name} is grouped by or aggregated in an aggregate query. "
                "Write one of groupby and aggregate.",
            )
        if grouped:
            return self._group(element, column, alias)
        aggregate, columns = element.choice("aggregate", AGGREGATES, "")
        if distinct and aggregate != "countcolumn":
            raise element.refused(
                IMPOSSIBLE, "distinct is for countcolumn. Drop it, or count different values."
            )
        if column.type not in columns:
            raise element.refused(
                IMPOSSIBLE,
                f"{column.name} is a {column.type}, which has no {aggregate}. Use another column.",
            )
        path = () if aggregate == "count" else (column.name,)
        return Item(path=path, alias=alias, aggregate=aggregate, distinct=distinct)

    def _group(self, element: Element, column: Column, alias: str) -> Item:
        grouping = None
        if "dategrouping" in element.attributes:
            grouping = element.choice("dategrouping", DATE_GROUPINGS, "")
            if column.type != "datetime":
                raise element.refused(
                    IMPOSSIBLE, f"{column.name} is no date to be grouped. Drop dategrouping."
                )
        return Item(
            path=(column.name,),
            alias=alias,
            groupby=True,
            date_grouping=grouping,
            user_zone=element.flag("usertimezone", default=True),
        )

    def orders(self, element: Element, scope: FetchScope) -> tuple[Order, ...]:
        """The sort orders."""
        found = [self._order(one, scope) for one in element.every("order")]
        if len(found) > limits.QUERY_ORDERS_MAX:
            raise element.refused(
                IMPOSSIBLE, f"it has more than {limits.QUERY_ORDERS_MAX} orders. Drop the last."
            )
        return tuple(found)

    def _order(self, element: Element, scope: FetchScope) -> Order:
        descending, alias = element.flag("descending"), element.attributes.get("alias")
        if self.aggregate:
            if alias not in self.grouped or "attribute" in element.attributes:
                raise element.refused(
                    AGGREGATE_ALIAS, "an aggregate query is ordered by the alias of an attribute."
                )
            return Order(alias=alias, descending=descending, by_label=not self.by_number)
        if alias is not None:
            raise element.refused(
                IMPOSSIBLE, "alias is for aggregate queries. Order by attribute and entityname."
            )
        name, entity = element.needs("attribute"), element.attributes.get("entityname")
        path = scope.path(element, name, entity)
        by_label = not self.by_number and scope.column(path).type == "choice"
        return Order(path=path, descending=descending, by_label=by_label)


def _attributes(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.name == "attribute":
            yield child
        yield from _attributes(child)


def _plain(entity: Element, table: Table) -> set[str]:
    """The names that the columns of the query's own table have in the answer."""
    named = [one.attributes for one in entity.every("attribute")]
    if not named or entity.every("all-attributes"):
        return {column.wire for column in table.columns}
    columns = {one.get("name", "") for one in named if "alias" not in one}
    return {table.by_name[name].wire for name in columns | {table.key} if name in table.by_name}
