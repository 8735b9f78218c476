"""OData's query options other than `$filter`: select, expand, order, group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lark import Token, Tree
from msgspec import Struct

from relevo import limits
from relevo.kernel.expressions.tree import Expression
from relevo.kernel.querying.errors import UNKNOWN_COLUMN
from relevo.kernel.querying.model import Aggregate, Expand, Item, Link, Order
from relevo.kernel.querying.odata.grammar import SourcePlace, parse
from relevo.kernel.querying.odata.paths import ResolvedPath, behind, find, names_of, unknown_column

if TYPE_CHECKING:
    from relevo.errors import InvalidQuery
    from relevo.kernel.querying.catalogue import Table
    from relevo.kernel.querying.odata.filters import FilterCondition, Reader

_METHODS: Final[dict[str, Aggregate]] = {
    "sum": "sum",
    "min": "min",
    "max": "max",
    "average": "avg",
}
_OF_COLLECTIONS: Final = frozenset({"$filter", "$orderby", "$top"})
Syntax = Tree[Token]


class ODataGroups(Struct, frozen=True):
    """The groups and aggregates of `$apply`."""

    items: tuple[Item, ...]
    filter: Expression | None
    links: tuple[Link, ...]


def top(text: str, place: SourcePlace) -> int:
    """Return the number of rows; one out of bounds is refused, never cut."""
    most = limits.QUERY_ROWS_MAX
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise place.at(0, f"`{text[:64]}` is no whole number from 1 to {most:,}. Write one.")
    return number


class ODataParts:
    """Reads the options of one request."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.catalogue = reader.catalogue
        self._expanded = 0

    def filter(self, text: str, table: Table) -> FilterCondition:
        """Return the condition of `$filter`."""
        return self.reader.filter(text, table)

    def select(self, text: str, table: Table) -> tuple[Item, ...]:
        """Return the columns of `$select`."""
        place = SourcePlace("$select")
        return _selected(parse("select", text, place), table, place)

    def orders(self, text: str, table: Table) -> tuple[Order, ...]:
        """Return the orders of `$orderby`."""
        place = SourcePlace("$orderby")
        return self._ordered(parse("orderby", text, place), table, place)

    def group_orders(self, text: str) -> tuple[Order, ...]:
        """Return the orders of `$orderby` beside `$apply`, by the names of its results."""
        place = SourcePlace("$orderby")
        found = _orders(parse("orderby", text, place), place)
        return tuple(
            Order(alias="/".join(names_of(path)), descending=falling) for path, falling in found
        )

    def expands(self, text: str, table: Table) -> tuple[Expand, ...]:
        """Return the links of `$expand`."""
        place = SourcePlace("$expand")
        return self._expands(parse("expand", text, place), table, place, depth=1)

    def apply(self, text: str, table: Table) -> ODataGroups:
        """Return the groups and aggregates of `$apply`."""
        place = SourcePlace("$apply")
        found = _steps(parse("apply", text, place), place)
        condition = None
        if "filtered" in found:
            inside = cast(Syntax, found["filtered"].children[0])
            condition = self.reader.condition(inside, table, place)
        items: list[Item] = []
        aggregate = found.get("aggregate")
        if "grouped" in found:
            *paths, aggregate = found["grouped"].children  # type: ignore[assignment]
            for path in paths:
                column = self._column(cast(Syntax, path), table, place)
                name = "/".join(names_of(cast(Syntax, path)))
                items.append(Item(path=column.path, groupby=True, alias=name))
        if aggregate is not None:
            items += [self._aggregation(child, table, place) for child in aggregate.children]
        if not items:
            raise place.at(0, "nothing is grouped or aggregated. Use groupby or aggregate.")
        return ODataGroups(
            tuple(items),
            condition.tree if condition else None,
            condition.links if condition else (),
        )

    def _aggregation(self, found: Any, table: Table, place: SourcePlace) -> Item:
        if found.data == "counted":
            return Item(aggregate="count", alias=str(found.children[0]))
        path, method, alias = found.children
        if str(method) not in _METHODS:
            choice = ", ".join(_METHODS)
            raise place.at(method, f"there is no method `{method[:64]}`. Use {choice}.")
        column = self._column(path, table, place)
        return Item(path=column.path, aggregate=_METHODS[str(method)], alias=str(alias))

    def _ordered(self, tree: Syntax, table: Table, place: SourcePlace) -> tuple[Order, ...]:
        return tuple(
            Order(path=self._column(path, table, place).path, descending=falling)
            for path, falling in _orders(tree, place)
        )

    def _column(self, path: Syntax, table: Table, place: SourcePlace) -> ResolvedPath:
        return find(names_of(path), table, self.catalogue, path, place)

    def _expands(
        self, tree: Syntax, table: Table, place: SourcePlace, *, depth: int
    ) -> tuple[Expand, ...]:
        if depth > limits.QUERY_EXPAND_DEPTH_MAX:
            what = f"it nests deeper than {limits.QUERY_EXPAND_DEPTH_MAX} levels"
            raise place.at(tree, f"{what}. Ask for the rest by another request.")
        found = [self._expand(cast(Syntax, child), table, place, depth) for child in tree.children]
        names = [one.navigation for one in found]
        for name in names:
            if names.count(name) > 1:
                raise place.at(tree, f"`{name}` is expanded twice. Drop one.")
        return tuple(found)

    def _expand(self, tree: Syntax, table: Table, place: SourcePlace, depth: int) -> Expand:
        name, *parts = tree.children
        self._expanded += 1
        if self._expanded > limits.QUERY_EXPANDS_MAX:
            raise place.at(tree, f"more than {limits.QUERY_EXPANDS_MAX} are expanded. Drop some.")
        navigation = table.navigation_by_name.get(str(name))
        if navigation is None:
            raise _unknown_navigation(table, cast(Token, name), place)
        there = behind(navigation, self.catalogue, cast(Token, name), place)
        options = _options([cast(Syntax, one) for one in filter(None, parts)], place)
        for option, inside in options.items():
            if option in _OF_COLLECTIONS and not navigation.collection:
                raise place.at(inside, f"`{name}` leads to one row, without {option}. Drop it.")
        condition = None
        if "$filter" in options:
            condition = self.reader.condition(_inside(options["$filter"]), there, place)
        return Expand(
            navigation=navigation.name,
            items=_selected(_inside(options["$select"]), there, place)
            if "$select" in options
            else (),
            filter=condition.tree if condition else None,
            links=condition.links if condition else (),
            orders=self._ordered(_inside(options["$orderby"]), there, place)
            if "$orderby" in options
            else (),
            top=top(str(options["$top"].children[0]), place) if "$top" in options else None,
            expands=self._expands(_inside(options["$expand"]), there, place, depth=depth + 1)
            if "$expand" in options
            else (),
        )


def _options(parts: list[Syntax], place: SourcePlace) -> dict[str, Syntax]:
    """The options in the parentheses behind a navigation, by name."""
    found: dict[str, Syntax] = {}
    for part in parts:
        name = {"filter_option": "$filter", "top": "$top"}.get(str(part.data))
        name = name or f"${_inside(part).data}"
        if name in found:
            raise place.at(part, f"{name} stands there twice. Drop one.")
        found[name] = part
    return found


def _inside(part: Syntax) -> Syntax:
    return cast(Syntax, part.children[0])


def _selected(tree: Syntax, table: Table, place: SourcePlace) -> tuple[Item, ...]:
    found: dict[str, Item] = {}
    for token in tree.children:
        column = table.by_wire.get(str(token))
        if column is None:
            raise unknown_column(table, str(token), token, place)
        found[column.name] = Item(path=(column.name,))
    return tuple(found.values())


def _orders(tree: Syntax, place: SourcePlace) -> list[tuple[Syntax, bool]]:
    """Each path, and whether it falls."""
    if len(tree.children) > limits.QUERY_ORDERS_MAX:
        raise place.at(tree, f"it has more than {limits.QUERY_ORDERS_MAX} items. Drop some.")
    pairs = [cast(Syntax, child).children for child in tree.children]
    return [(cast(Syntax, path), str(direction) == "desc") for path, direction in pairs]


def _steps(tree: Syntax, place: SourcePlace) -> dict[str, Syntax]:
    """The transformations of `$apply` by name: a filter, then groups or one aggregate."""
    steps = [cast(Syntax, child) for child in tree.children]
    found = {str(step.data): step for step in steps}
    names = [str(step.data) for step in steps]
    if len(found) < len(names) or "filtered" in names[1:] or {"grouped", "aggregate"} <= set(names):
        raise place.at(tree, "write filter(…)/groupby((…),aggregate(…)), each part at most once.")
    return found


def _unknown_navigation(table: Table, name: Token, place: SourcePlace) -> InvalidQuery:
    known = ", ".join(sorted(table.navigation_by_name)) or "none"
    what = f"`{table.name}` has no navigation `{name[:64]}`. It has {known[:500]}."
    return place.at(name, what, UNKNOWN_COLUMN)
