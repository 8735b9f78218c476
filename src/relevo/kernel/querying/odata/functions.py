"""The functions `Microsoft.Dynamics.CRM.*`: the operators of FetchXML by other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.kernel.querying.catalogue import Table
from relevo.kernel.querying.errors import IMPOSSIBLE, OPERATOR, InvalidQuery
from relevo.kernel.querying.fetchxml.conditions import OPERATORS, Asker, FetchScope, Test
from relevo.kernel.querying.fetchxml.elements import Element
from relevo.kernel.querying.model import Path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lark import Token

    from relevo.kernel.expressions.tree import Expression
    from relevo.kernel.querying.odata.grammar import SourcePlace
    from relevo.kernel.querying.odata.values import WrittenValue

PREFIX: Final = "Microsoft.Dynamics.CRM."
FUNCTIONS: Final[dict[str, str]] = {
    "In": "in",
    "NotIn": "not-in",
    "Between": "between",
    "NotBetween": "not-between",
    "Today": "today",
    "Yesterday": "yesterday",
    "Tomorrow": "tomorrow",
    "On": "on",
    "OnOrAfter": "on-or-after",
    "OnOrBefore": "on-or-before",
    "LastXHours": "last-x-hours",
    "LastXDays": "last-x-days",
    "LastXWeeks": "last-x-weeks",
    "LastXMonths": "last-x-months",
    "NextXHours": "next-x-hours",
    "NextXDays": "next-x-days",
    "OlderThanXMinutes": "olderthan-x-minutes",
    "OlderThanXHours": "olderthan-x-hours",
    "OlderThanXDays": "olderthan-x-days",
    "ThisWeek": "this-week",
    "ThisMonth": "this-month",
    "ThisYear": "this-year",
    "EqualUserId": "eq-userid",
    "NotEqualUserId": "ne-userid",
    "EqualBusinessId": "eq-businessid",
    "NotEqualBusinessId": "ne-businessid",
}
"""Those that are served, and the operator that each one is."""
_ARGUMENTS: Final = {"PropertyName", "PropertyValue", "PropertyValues"}


def read(
    name: Token, given: Mapping[str, list[WrittenValue]], place: SourcePlace
) -> tuple[str, tuple[str, ...], str]:
    """Return the operand of a function, the texts of its values, and its operator."""
    operator = FUNCTIONS.get(str(name).removeprefix(PREFIX))
    if operator is None:
        raise place.at(name, f"the function `{name[:64]}` is not served. Use another.", OPERATOR)
    for key in given:
        if key not in _ARGUMENTS:
            choice = ", ".join(sorted(_ARGUMENTS))
            raise place.at(name, f"there is no argument `{key[:64]}`. Use {choice}.")
    subject = given.get("PropertyName", [])
    if len(subject) != 1 or subject[0].kind != "text":
        raise place.at(name, "PropertyName is needed. Write a column's name in single quotes.")
    values = [*given.get("PropertyValue", []), *given.get("PropertyValues", [])]
    if any(value.kind == "null" for value in values):
        raise place.at(name, "null cannot be a value here. Write eq null beside it.")
    return subject[0].value, tuple(value.text for value in values), operator


class FunctionCall(Struct, frozen=True):
    """A function about to become a node."""

    operator: str
    path: Path
    table: Table
    """That the last name of the path is a column of."""
    texts: tuple[str, ...]
    asker: Asker


class _Test(Test, frozen=True):
    """The same condition as in FetchXML, with another place where faults lie."""

    place: SourcePlace
    name: Token

    def refused(self, message: str, code: str = IMPOSSIBLE) -> InvalidQuery:
        return self.place.at(self.name, message, code)


def node(call: FunctionCall, name: Token, place: SourcePlace) -> Expression:
    """Return the node of a call; raises `InvalidQuery`."""
    operator = OPERATORS[call.operator]
    scope = FetchScope(call.table, {call.path[0]: call.table})
    element = Element("condition", {}, 1)
    test = _Test(element, call.operator, scope, call.path, call.texts, call.asker, place, name)
    if test.column.type not in operator.columns:
        what = f"it cannot be asked of `{call.path[-1]}`, which is a {test.column.type}"
        raise test.refused(f"{what}. Use another.", OPERATOR)
    if not operator.least <= len(call.texts) <= operator.most:
        raise test.refused(
            f"it takes {operator.least} to {operator.most:,} values, not {len(call.texts)}."
        )
    return operator.node(test)
