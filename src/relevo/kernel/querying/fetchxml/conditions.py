"""The conditions of FetchXML: an operator, a column and texts become a node of the tree.

Every operator that is served stands in `OPERATORS`, with the columns and the number of values that
it takes. Conditions on null are null, and what is null is not returned: also by `ne` and `not-…`,
so that FetchXML and OData find the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from relevo import limits
from relevo.kernel.expressions.tree import (
    NULL,
    Affix,
    Compare,
    CompareOperator,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Not,
)
from relevo.kernel.querying.catalogue import Column, ColumnType, Table
from relevo.kernel.querying.errors import IMPOSSIBLE, OPERATOR, UNKNOWN_COLUMN
from relevo.kernel.querying.fetchxml import dates as fetch_dates
from relevo.kernel.querying.fetchxml import values as fetch_values
from relevo.kernel.querying.fetchxml.elements import Element
from relevo.kernel.querying.model import RULES, Caller, column

if TYPE_CHECKING:
    from relevo.errors import InvalidQuery

Columns = frozenset[ColumnType]
_TEXTS: Final[Columns] = frozenset({"text", "memo", "json"})
_DATES: Final[Columns] = frozenset({"datetime"})
_IDENTITIES: Final[Columns] = frozenset({"guid", "lookup"})
_ORDERED: Final[Columns] = _TEXTS | _DATES | {"int", "bigint", "float", "choice"}
_ALL: Final[Columns] = _ORDERED | _IDENTITIES | {"bool"}


class Asker(Struct, frozen=True):
    """The caller and the time, for operators such as `today` and `eq-userid`."""

    caller: Caller
    now: datetime

    @property
    def zone(self) -> ZoneInfo:
        """The caller's time zone."""
        return ZoneInfo(self.caller.zone)


class FetchScope(Struct, frozen=True):
    """The columns that a condition or an order can name."""

    table: Table
    joined: Mapping[str, Table] = {}
    """Linked tables by alias; only the query's own filters and orders can reach into them."""

    def path(self, element: Element, name: str, alias: str | None = None) -> tuple[str, ...]:
        """Return the path of a column of the table, or of the linked one under an alias."""
        if alias == self.table.name and alias not in self.joined:
            alias = None
        table = self.joined.get(alias) if alias is not None else self.table
        if table is None:
            known = ", ".join(self.joined) or "none"
            raise element.refused(
                IMPOSSIBLE,
                f"there is no linked table `{(alias or '')[:64]}` here. There is {known}.",
            )
        if name not in table.by_name:
            raise element.refused(
                UNKNOWN_COLUMN, f"{table.name} has no column `{name[:64]}`. Check its name."
            )
        return (name,) if alias is None else (alias, name)

    def column(self, path: tuple[str, ...]) -> Column:
        """Return the column at a path that `path` gave."""
        table = self.table if len(path) == 1 else self.joined[path[0]]
        return table.by_name[path[-1]]


class Test(Struct, frozen=True):
    """A condition about to become a node: the column and its operand."""

    element: Element
    operator: str
    scope: FetchScope
    path: tuple[str, ...]
    texts: tuple[str, ...]
    asker: Asker

    @property
    def subject(self) -> Expression:
        """The node of the column."""
        return column(*self.path)

    @property
    def column(self) -> Column:
        """Its entry in the catalogue."""
        return self.scope.column(self.path)

    def constants(self) -> tuple[Constant, ...]:
        """The values, in the column's type."""
        return tuple(Constant(self.value(text)) for text in self.texts)

    def value(self, text: str) -> Any:
        """Return a text as a value of the column's type."""
        try:
            return fetch_values.value(self.column, text, self.asker.zone)
        except (ValueError, OverflowError):
            raise self.refused(
                f"`{text[:64]}` is no value of {self.column.name}. "
                f"Write {fetch_values.form(self.column)}."
            ) from None

    def count(self) -> int:
        """Return the number that an operator with an `x` takes."""
        text = self.texts[0].strip()
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
            raise self.refused(f"{self.operator} takes a whole number from 1, not `{text[:64]}`.")
        return int(text)

    def identities(self, *found: UUID) -> List:
        """Return ids as the column stores them."""
        stored = str if self.column.sql_type == "text" else UUID
        return List(tuple(Constant(stored(str(one))) for one in found))

    def refused(self, message: str, code: str = IMPOSSIBLE) -> InvalidQuery:
        """Return the error for this condition."""
        return self.element.refused(code, message)


class Operator(Struct, frozen=True):
    """The node of an operator, and its operands."""

    node: Callable[[Test], Expression]
    columns: Columns
    least: int = 1
    most: int = 1
    against_column: bool = False
    """Whether another column can stand where the value does (`valueof`)."""


def condition(element: Element, scope: FetchScope, asker: Asker) -> Expression:
    """Return the node of a `<condition>`; an invalid one is refused with its code."""
    name = element.needs("operator")
    operator = OPERATORS.get(name)
    if operator is None:
        raise element.refused(OPERATOR, f"the operator `{name[:64]}` is not served. Use another.")
    path = scope.path(element, element.needs("attribute"), element.attributes.get("entityname"))
    test = Test(element, name, scope, path, _texts(element), asker)
    if test.column.type not in operator.columns:
        raise test.refused(
            f"{name} cannot be asked of {path[-1]}, which is a {test.column.type}. Use another.",
            OPERATOR,
        )
    if "valueof" in element.attributes:
        return _against(test, operator)
    if not operator.least <= len(test.texts) <= operator.most:
        raise test.refused(f"{_takes(name, operator)}, and here are {len(test.texts)}.")
    return operator.node(test)


def _texts(element: Element) -> tuple[str, ...]:
    found = ["".join(child.texts) for child in element.children]
    given = [element.attributes[key] for key in ("value", "valueof") if key in element.attributes]
    if given and (found or len(given) > 1):
        raise element.refused(
            IMPOSSIBLE, "a condition has value, valueof or <value> elements. Keep one of them."
        )
    return tuple(found or given)


def _takes(name: str, operator: Operator) -> str:
    least, most = operator.least, operator.most
    if most == 0:
        return f"{name} takes no value"
    if least == most:
        return f"{name} takes {least} value{'s' * (least > 1)}"
    return f"{name} takes {least} to {most:,} values"


def _against(test: Test, operator: Operator) -> Expression:
    """A column compared with another one of the same type."""
    if not operator.against_column:
        raise test.refused(f"{test.operator} cannot be asked of two columns. Give a value.")
    alias, dot, name = test.texts[0].rpartition(".")
    path = test.scope.path(test.element, name, alias if dot else None)
    other = test.scope.column(path)
    if not fetch_values.alike(test.column, other):
        raise test.refused(
            f"{test.path[-1]} is a {test.column.type} and {name} a {other.type}. Compare columns "
            "of one type."
        )
    return Compare(_SIGNS[test.operator], test.subject, column(*path), RULES)


def _compared(test: Test) -> Expression:
    return Compare(_SIGNS[test.operator], test.subject, test.constants()[0], RULES)


def _listed(test: Test) -> Expression:
    return In(test.subject, List(test.constants()), RULES)


def _between(test: Test) -> Expression:
    low, high = test.constants()
    return _all(
        Compare(">=", test.subject, low, RULES),
        Compare("<=", test.subject, high, RULES),
    )


def _like(test: Test) -> Expression:
    """The simple forms are those of OData, so that they find the same rows."""
    pattern = test.texts[0]
    if "[" in pattern:
        raise test.refused("sets in [ ] are not served in patterns. Use % and _ only.", OPERATOR)
    text = pattern.strip("%")
    if "%" in text or "_" in text:
        return Like(test.subject, Constant(pattern), RULES)
    match pattern.startswith("%"), pattern.endswith("%"):
        case False, False:
            return Compare("=", test.subject, Constant(text), RULES)
        case False, True:
            return Affix("start", test.subject, Constant(text), RULES)
        case True, False:
            return Affix("end", test.subject, Constant(text), RULES)
        case _:
            return In(Constant(text), test.subject, RULES)


def _starts(test: Test) -> Expression:
    return Affix("start", test.subject, test.constants()[0], RULES)


def _ends(test: Test) -> Expression:
    return Affix("end", test.subject, test.constants()[0], RULES)


def _relative(test: Test) -> Expression:
    count = test.count() if test.texts else 0
    try:
        return _within(
            test,
            fetch_dates.interval(test.operator, test.asker.now.astimezone(test.asker.zone), count),
        )
    except OverflowError:
        raise test.refused(f"{count} is too far away for {test.operator}. Come closer.") from None


def _of_day(test: Test) -> Expression:
    try:
        moment = test.value(test.texts[0]).astimezone(test.asker.zone)
        return _within(test, fetch_dates.of_day(test.operator, moment))
    except OverflowError:
        raise test.refused(f"`{test.texts[0][:64]}` is too far away. Come closer.") from None


def _within(test: Test, found: fetch_dates.DateInterval) -> Expression:
    ends: list[Expression] = []
    if found.since is not None:
        ends.append(Compare(">=", test.subject, Constant(found.since), RULES))
    if found.until is not None:
        ends.append(Compare("<", test.subject, Constant(found.until), RULES))
    return _all(*ends) if ends else Not(IsNull(test.subject), RULES)


def _user(test: Test) -> Expression:
    return In(test.subject, test.identities(test.asker.caller.user_id), RULES)


def _teams(test: Test) -> Expression:
    return In(test.subject, test.identities(*test.asker.caller.teams), RULES)


def _user_or_teams(test: Test) -> Expression:
    caller = test.asker.caller
    return In(test.subject, test.identities(caller.user_id, *caller.teams), RULES)


def _unit(test: Test) -> Expression:
    unit = test.asker.caller.unit
    one = NULL if unit is None else test.identities(unit).items[0]
    return Compare("=", test.subject, one, RULES)


def _null(test: Test) -> Expression:
    return IsNull(test.subject)


def _all(*nodes: Expression) -> Expression:
    return nodes[0] if len(nodes) == 1 else Logic("and", nodes, RULES)


def _not(node: Callable[[Test], Expression]) -> Callable[[Test], Expression]:
    return lambda test: Not(node(test), RULES)


_SIGNS: Final[dict[str, CompareOperator]] = {
    "eq": "=",
    "ne": "<>",
    "neq": "<>",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
}
OPERATORS: Final[dict[str, Operator]] = {
    **{name: Operator(_compared, _ALL, against_column=True) for name in ("eq", "ne", "neq")},
    **{
        name: Operator(_compared, _ORDERED, against_column=True)
        for name in ("gt", "ge", "lt", "le")
    },
    "in": Operator(_listed, _ALL, most=limits.QUERY_LIST_MAX),
    "not-in": Operator(_not(_listed), _ALL, most=limits.QUERY_LIST_MAX),
    "between": Operator(_between, _ORDERED, 2, 2),
    "not-between": Operator(_not(_between), _ORDERED, 2, 2),
    "null": Operator(_null, _ALL, 0, 0),
    "not-null": Operator(_not(_null), _ALL, 0, 0),
    "like": Operator(_like, _TEXTS),
    "not-like": Operator(_not(_like), _TEXTS),
    "begins-with": Operator(_starts, _TEXTS),
    "not-begin-with": Operator(_not(_starts), _TEXTS),
    "ends-with": Operator(_ends, _TEXTS),
    "not-end-with": Operator(_not(_ends), _TEXTS),
    **{name: Operator(_of_day, _DATES) for name in fetch_dates.DAYS},
    **{name: Operator(_relative, _DATES) for name in fetch_dates.COUNTED},
    **{
        name: Operator(_relative, _DATES, 0, 0)
        for name in (*fetch_dates.CALENDAR, *fetch_dates.SEVEN_DAYS)
    },
    "eq-userid": Operator(_user, _IDENTITIES, 0, 0),
    "ne-userid": Operator(_not(_user), _IDENTITIES, 0, 0),
    "eq-userteams": Operator(_teams, _IDENTITIES, 0, 0),
    "eq-useroruserteams": Operator(_user_or_teams, _IDENTITIES, 0, 0),
    "eq-businessid": Operator(_unit, _IDENTITIES, 0, 0),
    "ne-businessid": Operator(_not(_unit), _IDENTITIES, 0, 0),
}
"""Every operator that is served; others (fiscal, hierarchy, language, several choices) are not."""
