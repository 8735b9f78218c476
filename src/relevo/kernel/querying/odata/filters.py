"""The front end for OData's `$filter`: text becomes the shared tree.

    reader = Reader(catalogue, caller, now, aliases={"@p": "'x'"})
    reader.filter("name eq @p and statecode in (0, 1)", table)

Names, types and limits are checked here; whether the caller may use a column, when it is planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from lark import Token, Tree
from msgspec import Struct

from relevo import limits
from relevo.kernel.expressions.tree import (
    Affix,
    Compare,
    CompareOperator,
    Constant,
    Expression,
    In,
    IsNull,
    List,
    Logic,
    LogicOperator,
    Not,
    Rules,
)
from relevo.kernel.querying.errors import CONDITIONS, UNKNOWN_COLUMN
from relevo.kernel.querying.fetchxml.conditions import Asker
from relevo.kernel.querying.model import RULES, Link, related
from relevo.kernel.querying.odata import functions as odata_functions
from relevo.kernel.querying.odata import values as odata_values
from relevo.kernel.querying.odata.grammar import SourcePlace, parse
from relevo.kernel.querying.odata.paths import ResolvedPath, behind, find, names_of
from relevo.kernel.querying.odata.values import WrittenValue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from relevo.kernel.querying.catalogue import Catalogue, Column, Navigation, Table
    from relevo.kernel.querying.model import Caller, LinkKind

_SIGNS: Final[dict[str, CompareOperator]] = {
    "eq": "=",
    "ne": "<>",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
}
_HOLDS_NOT: Final = Rules(nulls="blank", case="folded", mixed="unknown")
"""`not` that takes what is null for what does not hold."""


class FilterCondition(Struct, frozen=True):
    """A filter, and the links that it tests for."""

    tree: Expression
    links: tuple[Link, ...]


class Reader:
    """Reads the filters of one request: they share its aliases and its limits."""

    def __init__(
        self,
        catalogue: Catalogue,
        caller: Caller,
        now: datetime,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.catalogue = catalogue
        self.caller = caller
        self.now = now
        self.aliases = aliases or {}
        self.conditions = 0
        self.values = 0
        self.links = 0
        self._parsed: dict[str, Tree[Token]] = {}

    def filter(self, text: str, table: Table, option: str = "$filter") -> FilterCondition:
        """Return the condition that a text stands for; raises `InvalidQuery`."""
        place = SourcePlace(option)
        return self.condition(parse("filter", text, place), table, place)

    def condition(self, found: Tree[Token], table: Table, place: SourcePlace) -> FilterCondition:
        """Return the condition of a syntax tree."""
        builder = _FilterBuilder(self, place, table)
        tree = builder.build(found)
        return FilterCondition(tree, tuple(builder.links))

    def counted(self, found: Tree[Token], place: SourcePlace) -> None:
        """Count a condition."""
        self.conditions += 1
        if self.conditions > limits.QUERY_CONDITIONS_MAX:
            raise place.at(
                found,
                f"there are more than {limits.QUERY_CONDITIONS_MAX} conditions. Use in (…).",
                CONDITIONS,
            )

    def counted_values(self, count: int, found: Tree[Token], place: SourcePlace) -> None:
        """Count the values of a list; one that an alias repeats counts every time."""
        self.values += count
        if count > limits.QUERY_LIST_MAX:
            raise place.at(
                found, f"the list has more than {limits.QUERY_LIST_MAX:,} values. Split it."
            )
        if self.values > limits.QUERY_VALUES_MAX:
            raise place.at(
                found,
                f"all lists have more than {limits.QUERY_VALUES_MAX:,} values. Split the query.",
            )

    def alias(self, name: str, place: SourcePlace) -> Tree[Token] | None:
        """Return the syntax tree of an alias, which is read once however often it stands there."""
        text = self.aliases.get(name)
        if text is None:
            return None
        if name not in self._parsed:
            self._parsed[name] = parse("value", text, place)
        return self._parsed[name]


class _FilterBuilder:
    """Turns a syntax tree into nodes; one method for each name in the grammar."""

    def __init__(
        self,
        reader: Reader,
        place: SourcePlace,
        table: Table,
        variable: str | None = None,
        depth: int = 0,
    ) -> None:
        self.reader = reader
        self.place = place
        self.table = table
        self.variable = variable
        """The prefix of paths, inside a lambda."""
        self.depth = depth
        self.links: list[Link] = []

    def build(self, found: Tree[Token]) -> Expression:
        node: Expression = getattr(self, f"_{found.data}")(found, found.children)
        return node

    def nested(self, found: Tree[Token]) -> Expression:
        if self.depth >= limits.QUERY_DEPTH_MAX:
            raise self.place.at(
                found, f"it nests deeper than {limits.QUERY_DEPTH_MAX} levels. Flatten it."
            )
        self.depth += 1
        node = self.build(found)
        self.depth -= 1
        return node

    def _logic(self, sign: LogicOperator, parts: list[Any]) -> Expression:
        return Logic(sign, tuple(self.build(part) for part in parts), RULES)

    def _filter(self, _: Tree[Token], parts: list[Any]) -> Expression:
        return self._logic("or", parts)

    def _conjunction(self, _: Tree[Token], parts: list[Any]) -> Expression:
        return self._logic("and", parts)

    def _inverted(self, _: Tree[Token], parts: list[Any]) -> Expression:
        return Not(self.nested(parts[0]), RULES)

    def _group(self, _: Tree[Token], parts: list[Any]) -> Expression:
        return self.nested(parts[0])

    def _comparison(self, found: Tree[Token], parts: list[Any]) -> Expression:
        self.reader.counted(found, self.place)
        left, token, right = parts
        a, b = self.operand(left), self.operand(right)
        sign = _SIGNS[str(token)]
        match a, b:
            case ResolvedPath(), ResolvedPath():
                if not odata_values.comparable(a.column, b.column):
                    raise self.place.at(right, _unlike(a.column, f"`{b.column.wire}`"))
                nodes = a.node, b.node
            case ResolvedPath(), WrittenValue():
                nodes = a.node, Constant(self.value(a.column, b, right))
            case WrittenValue(), ResolvedPath():
                nodes = Constant(self.value(b.column, a, left)), b.node
            case _:
                raise self.place.at(found, "two values are compared. Name a column on one side.")
        literal = next((one for one in (a, b) if isinstance(one, WrittenValue)), None)
        if literal is not None and literal.kind == "null" and sign in ("=", "<>"):
            tested = next(one.node for one in (a, b) if isinstance(one, ResolvedPath))
            return IsNull(tested) if sign == "=" else Not(IsNull(tested), RULES)
        self.ordered(found, sign, a, b)
        return Compare(sign, *nodes, RULES)

    def ordered(
        self, found: Tree[Token], sign: CompareOperator, *sides: ResolvedPath | WrittenValue
    ) -> None:
        for side in sides:
            unordered = isinstance(side, ResolvedPath) and side.column.type in (
                "bool",
                "guid",
                "lookup",
            )
            if unordered and sign not in ("=", "<>"):
                raise self.place.at(found, "its values have no order. Compare them with eq or ne.")

    def _membership(self, found: Tree[Token], parts: list[Any]) -> Expression:
        self.reader.counted(found, self.place)
        subject, *items = parts
        self.reader.counted_values(len(items), found, self.place)
        known = self.column(subject)
        values = [self.value(known.column, self.literal(item), item) for item in items]
        return In(known.node, List(tuple(map(Constant, values))), RULES)

    def _text_call(self, found: Tree[Token], parts: list[Any]) -> Expression:
        self.reader.counted(found, self.place)
        name, subject, part = parts
        whole, piece = self.column(subject), self.operand(part)
        for one in (whole, piece):
            kind = one.column.type if isinstance(one, ResolvedPath) else one.kind
            if kind not in ("text", "memo", "json", "null"):
                raise self.place.at(found, f"{name} needs texts. Compare with eq instead.")
        node = piece.node if isinstance(piece, ResolvedPath) else Constant(piece.value)
        if name == "contains":
            return In(node, whole.node, RULES)
        return Affix("start" if name == "startswith" else "end", whole.node, node, RULES)

    def _call(self, found: Tree[Token], parts: list[Any]) -> Expression:
        self.reader.counted(found, self.place)
        name, *arguments = parts
        given: dict[str, list[WrittenValue]] = {}
        for argument in arguments:
            key, value = argument.children
            if str(key) in given:
                raise self.place.at(key, f"`{key}` stands there twice. Drop one.")
            given[str(key)] = self.values(value)
        subject, texts, operator = odata_functions.read(name, given, self.place)
        names = subject.split("/")
        if self.variable is not None and names[0] == self.variable:
            names = names[1:] or names
        where = find(names, self.table, self.reader.catalogue, name, self.place, logical=True)
        call = odata_functions.FunctionCall(
            operator,
            where.path,
            where.table,
            texts,
            Asker(self.reader.caller, self.reader.now),
        )
        return odata_functions.node(call, name, self.place)

    def _lambda(self, found: Tree[Token], parts: list[Any]) -> Expression:
        self.reader.counted(found, self.place)
        where, quantifier, variable, inside = parts
        way, table = self.collection(where)
        kind: LinkKind = "any" if quantifier == "any" else "not any"
        tree: Expression | None = None
        links: list[Link] = []
        if inside is not None:
            builder = _FilterBuilder(self.reader, self.place, table, str(variable), self.depth)
            tree, links = builder.nested(inside), builder.links
        elif quantifier == "all":
            raise self.place.at(quantifier, "all needs a condition. Write all(x: …).")
        if quantifier == "all" and tree is not None:
            tree = Not(tree, _HOLDS_NOT)
        link: Link | None = None
        for step in reversed(way):
            self.reader.links += 1
            link = Link(
                table=step.table,
                alias=f"lambda{self.reader.links}",
                column=step.target_column,
                parent_column=step.column,
                kind=kind if step is way[0] else "inner",
                filter=tree if link is None else None,
                links=tuple(links) if link is None else (link,),
            )
        assert link is not None
        self.links.append(link)
        return related(link.alias)

    def collection(self, found: Tree[Token]) -> tuple[list[Navigation], Table]:
        """The navigations to the rows that a lambda speaks of, and their table."""
        names, table = self.steps(found), self.table
        way: list[Navigation] = []
        for step in names:
            navigation = table.navigation_by_name.get(step)
            if navigation is None or navigation.collection != (len(way) == len(names) - 1):
                kind = "collection" if len(way) == len(names) - 1 else "single"
                raise self.place.at(
                    found,
                    f"`{table.name}` has no {kind}-valued navigation `{step[:64]}`. Check it.",
                    UNKNOWN_COLUMN,
                )
            way.append(navigation)
            table = behind(navigation, self.reader.catalogue, found, self.place)
        return way, table

    def operand(self, found: Tree[Token]) -> ResolvedPath | WrittenValue:
        return self.column(found) if found.data == "path" else self.literal(found)

    def column(self, found: Tree[Token]) -> ResolvedPath:
        return find(self.steps(found), self.table, self.reader.catalogue, found, self.place)

    def steps(self, found: Tree[Token]) -> list[str]:
        """The names of a path, without the variable of the lambda that it stands in."""
        names = names_of(found)
        if self.variable is None:
            return names
        if names[0] != self.variable or len(names) == 1:
            raise self.place.at(
                found, f"inside a lambda, columns are written `{self.variable}/…`. Add it."
            )
        return names[1:]

    def literal(self, found: Tree[Token]) -> WrittenValue:
        values = self.values(found)
        if found.data not in ("literal", "alias") or len(values) != 1:
            raise self.place.at(found, "one value is needed here. Write a single one.")
        return values[0]

    def values(self, found: Tree[Token]) -> list[WrittenValue]:
        """The values that a literal, an array or an alias stands for."""
        if found.data == "alias":
            return self.alias(cast(Token, found.children[0]))
        if found.data == "array":
            items = list(filter(None, found.children))
            self.reader.counted_values(len(items), found, self.place)
            return [self.values(cast(Tree[Token], item))[0] for item in items]
        token = cast(Token, found.children[0])
        try:
            return [odata_values.written(token)]
        except ValueError as error:
            raise self.place.at(token, f"{error}.") from None

    def alias(self, token: Token) -> list[WrittenValue]:
        place = SourcePlace(str(token)[:64])
        found = self.reader.alias(str(token), place)
        if found is None:
            raise self.place.at(token, f"`{token[:64]}` has no value. Add it to the query.")
        return _FilterBuilder(self.reader, place, self.table).values(found)

    def value(self, known: Column, literal: WrittenValue, found: Tree[Token]) -> Any:
        if not odata_values.fits(known, literal):
            raise self.place.at(found, _unlike(known, f"`{literal.text[:64]}`"))
        return odata_values.value(known, literal)


def _unlike(known: Column, what: str) -> str:
    return f"{what} is no value of `{known.wire}`. Write {odata_values.FORMS[known.type]}."
