"""Tables in a statement: aliases, joins, the caller's scope, and the resolution of paths.

A frame is one occurrence of a table. Every occurrence reads through the caller's scope, and
every use of a column other than showing it asks whether the caller may: both here only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.kernel.expressions import to_sql
from relevo.kernel.expressions.to_sql import Parameters
from relevo.kernel.expressions.tree import (
    Compare,
    Constant,
    Expression,
    In,
    List,
    Logic,
    Name,
    children,
)
from relevo.kernel.querying.errors import ENTITY, UNKNOWN_COLUMN, ColumnProtected, InvalidQuery
from relevo.kernel.querying.model import Caller, related_alias
from relevo.kernel.querying.statements import select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from relevo.kernel.querying.catalogue import Catalogue, Column, Navigation, Table
    from relevo.kernel.querying.model import Path

_TREE_DEPTH_MAX: Final = 4 * limits.QUERY_DEPTH_MAX
_TREE_NODES_MAX: Final = limits.QUERY_CONDITIONS_MAX * (limits.QUERY_LIST_MAX + 4)
_GUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_NUMBERS: Final = frozenset({"bigint", "numeric", "float8"})


class FrameContext:
    """The state that all parts of a statement share."""

    def __init__(self, catalogue: Catalogue, caller: Caller, bytes_max: int | None = None) -> None:
        self.catalogue = catalogue
        self.caller = caller
        self.bytes_max = bytes_max
        """How many bytes its rows have at most, and those inside of a row."""
        self.parameters = Parameters()
        self.bound = self.parameters.bound
        self._aliases = 0
        self._mine: dict[str, str] = {}

    def alias(self) -> str:
        """Return an alias that nothing else in the statement has."""
        self._aliases += 1
        return f"t{self._aliases}"

    def table(self, name: str) -> Table:
        """Return a table by its logical name."""
        found = self.catalogue.by_name.get(name)
        if found is None:
            raise InvalidQuery(
                f"There is no table `{name[:64]}`; check its name.", dataverse=ENTITY
            )
        return found

    def source(self, table: Table, alias: str, condition: Expression | None = None) -> str:
        """Return the `from` item of a table: only rows that the caller may see."""
        keys = _keys(table, condition)
        if keys is not None:
            return self._scoped(table, alias, table.by_keys.format(keys=self.bound(keys, "uuid[]")))
        return self._scoped(table, alias, _narrowed(table, condition))

    def visible(self, column: Column, key: str) -> str:
        """Return a key that SQL computes if the caller may see the row that has it, else null."""
        table = self.table(column.key_of)
        if self._scope(table) is None:
            return key
        alias = self.alias()
        there = table.by_name[table.key].of(alias)
        scoped = self._scoped(table, alias, column.key_source or table.source)
        return f"({select(there, scoped, where=f'{there} = {key}')})"

    def _scoped(self, table: Table, alias: str, source: str) -> str:
        scope = self._scope(table)
        if scope is None:
            return f"{source} as {alias}"
        return f"({select('t.*', f'{source} as t', where=scope)}) as {alias}"

    def _scope(self, table: Table) -> str | None:
        caller = self.caller
        if caller.scope == "all" or table.owner is None:
            return None
        mine = self._among(table.by_name[table.owner], [caller.user_id, *caller.teams])
        if caller.scope == "own" or table.unit is None or caller.unit is None:
            return mine
        return f"({mine} or {self._among(table.by_name[table.unit], [caller.unit])})"

    def _among(self, column: Column, ids: list[object]) -> str:
        kind = "text" if column.sql_type == "text" else "uuid"
        key = f"{kind} {ids}"
        if key not in self._mine:
            values = list(map(str, ids)) if kind == "text" else ids
            self._mine[key] = self.bound(values, f"{kind}[]")
        return f"{column.of('t')} = any({self._mine[key]})"


def _operands(condition: Expression | None) -> tuple[Expression | None, ...]:
    """Conditions that must all hold."""
    if isinstance(condition, Logic) and condition.operator == "and":
        return tuple(children(condition))
    return (condition,)


def _keys(table: Table, condition: Expression | None) -> list[UUID] | None:
    """Which rows a filter leaves possible, if it says so and the table can be read by keys."""
    for operand in _operands(condition) if table.by_keys else ():
        name, values = _fixed(operand)
        if name == table.key and all(isinstance(value, UUID) for value in values):
            return [value for value in values if isinstance(value, UUID)]
    return None


def _narrowed(table: Table, condition: Expression | None) -> str:
    """The source for the states that a filter leaves possible."""
    for operand in _operands(condition):
        name, values = _fixed(operand)
        by_value: Mapping[Any, str] = table.sources_by_state.get(name, {})
        sources = {by_value.get(value, table.source) for value in values}
        if by_value and len(sources) == 1:
            return sources.pop()
    return table.source


def _fixed(node: Expression | None) -> tuple[str, list[Any]]:
    """The column that a condition fixes to some values; an empty name if it fixes none."""
    match node:
        case Compare(operator="=", left=Name(name=name), right=Constant(value=value)):
            return name, [value]
        case Compare(operator="=", left=Constant(value=value), right=Name(name=name)):
            return name, [value]
        case In(item=Name(name=name), container=List(items=items)):
            values = [item.value for item in items if isinstance(item, Constant)]
            return (name, values) if len(values) == len(items) else ("", [])
        case _:
            return "", []


class Joined(Struct, frozen=True):
    """A frame that hangs on another."""

    how: str
    frame: QueryFrame
    on: str


class QueryFrame:
    """A table in a statement, with its joins."""

    def __init__(self, context: FrameContext, table: Table, alias: str, source: str) -> None:
        self.context = context
        self.table = table
        self.alias = alias
        self.source = source
        self.joined: list[Joined] = []
        self.conditions: list[str] = []
        """Conditions on its rows: in `where`, or in `on` of a joined frame."""
        self.links: dict[str, QueryFrame] = {}
        """Joined links by alias, where paths may start with them."""
        self.tests: dict[str, Callable[[], str]] = {}
        """The frames of `related(alias)`."""
        self._reached: dict[tuple[str, str, str], QueryFrame] = {}

    @classmethod
    def of(
        cls, context: FrameContext, table: Table, condition: Expression | None = None
    ) -> QueryFrame:
        """Return a frame for a table under a new alias."""
        alias = context.alias()
        return cls(context, table, alias, context.source(table, alias, condition))

    def sql(self) -> str:
        """Return the `from` clause."""
        parts = [self.source]
        for one in self.joined:
            inner = one.frame.sql()
            wrapped = f"({inner})" if one.frame.joined else inner
            parts.append(f"{one.how} {wrapped} on {one.on}")
        return " ".join(parts)

    def where(self) -> str:
        """Return the `where` clause."""
        return " and ".join(self.conditions) or "true"

    def column(self, name: str) -> Column:
        """Return a column by its logical name."""
        found = self.table.by_name.get(name)
        if found is None:
            raise InvalidQuery(
                f"The table `{self.table.name}` has no column `{name[:64]}`; check its name.",
                dataverse=UNKNOWN_COLUMN,
            )
        return found

    def find(self, path: Path) -> tuple[QueryFrame, Column]:
        """Return the column that a path leads to and the frame that has it; joins what it needs."""
        *way, last = path
        frame = self
        if way and way[0] in self.links:
            frame, way = self.links[way[0]], way[1:]
        for step in way:
            navigation = frame.table.navigation_by_name.get(step)
            if navigation is None or navigation.collection:
                raise InvalidQuery(
                    f"`{'/'.join(path)[:128]}` leads nowhere: `{frame.table.name}` has no "
                    f"single-valued navigation and no link `{step[:64]}`; check the name.",
                    dataverse=UNKNOWN_COLUMN,
                )
            frame = frame.reach(navigation)
        return frame, frame.column(last)

    def reach(self, navigation: Navigation) -> QueryFrame:
        """Return the frame of the row behind a single-valued navigation."""
        return self.reach_by(navigation.column, navigation.table, navigation.target_column)

    def reach_by(self, column: str, table: str, target_column: str) -> QueryFrame:
        """Return the frame of the one row of a table with a key that a column has."""
        key = (column, table, target_column)
        if key not in self._reached:
            frame = QueryFrame.of(self.context, self.context.table(table))
            on = matching(self, self.column(column), frame, frame.column(target_column))
            self.joined.append(Joined("left join", frame, on))
            self._reached[key] = frame
        return self._reached[key]

    def shown(self, column: Column) -> str:
        """Return the SQL expression of a column as the caller may see it."""
        if column.payload and not self.context.caller.may_read_payload:
            return f"null::{column.sql_type}"
        sql = column.of(self.alias)
        return self.context.visible(column, sql) if column.key_of else sql

    def usable(self, column: Column) -> Column:
        """Return a column that conditions, orders, groups and joins may use; refuses others."""
        if column.payload and not self.context.caller.may_read_payload:
            raise ColumnProtected(
                f"The column `{column.name}` cannot be filtered, ordered or grouped by without the "
                "right job.payload.read; ask for it, or leave the column out."
            )
        if not column.filterable:
            raise InvalidQuery(
                f"The column `{column.name}` cannot be filtered, ordered or grouped by; select it.",
            )
        return column

    def resolve(self, path: Path) -> to_sql.SqlColumn:
        """Return the value of a path in a filter."""
        alias = related_alias(path[0])
        if alias is not None:
            if alias not in self.tests:
                raise InvalidQuery(f"There is no related table `{alias[:64]}`; check its alias.")
            return to_sql.SqlColumn(self.tests[alias](), "boolean")
        frame, column = self.find(path)
        sql, identity = frame.usable(column).of(frame.alias), column.type in ("guid", "lookup")
        return to_sql.SqlColumn(sql, column.sql_type, exact=identity)

    def add(self, condition: Expression | None) -> None:
        """Let rows fulfil a filter."""
        if condition is None:
            return
        try:
            made = to_sql.clause(
                condition,
                self.resolve,
                parameters=self.context.parameters,
                depth_max=_TREE_DEPTH_MAX,
                nodes_max=_TREE_NODES_MAX,
            )
        except InvalidExpression as error:
            raise InvalidQuery(f"The filter cannot be searched for: {error}") from None
        if made.type not in ("boolean", "null"):
            raise InvalidQuery("The filter is a value and no condition; compare it with something.")
        self.conditions.append(f"{made.sql}::boolean")


def matching(left: QueryFrame, mine: Column, right: QueryFrame, theirs: Column) -> str:
    """Return the condition under which two frames' rows belong together.

    A lookup that can point into several tables must point into the table of the key that it meets.
    """
    given, wanted = left.usable(mine).of(left.alias), right.usable(theirs).of(right.alias)
    # What is given is converted, so that an index on what is looked for can serve.
    match mine.sql_type, theirs.sql_type:
        case "text", "uuid":
            given = f"(case when {given} ~* '{_GUID}' then {given}::uuid end)"
        case "uuid", "text":
            given = f"{given}::text"
        case one, two if one != two and not {one, two} <= _NUMBERS:
            given, wanted = f"{given}::text", f"{wanted}::text"
    parts = [f"{given} = {wanted}"]
    for frame, column, other, key in ((left, mine, right, theirs), (right, theirs, left, mine)):
        if column.target and key.name == other.table.key:
            target = column.target.replace("{t}", frame.alias)
            parts.append(f"{target} = {left.context.bound(other.table.name, 'text')}")
    return " and ".join(parts)
