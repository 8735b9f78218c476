"""The front end for the actions of rules: SET and REMOVE statements that change a message's copy.

    action = parse("SET Region = 'eu'; REMOVE Draft; SET sys.Priority = 9")
    action.apply({"priority": 4}, {"draft": True})    ({"priority": 9}, {"Region": "eu"})

Applying is pure: the input stays as it is. The statements run in order and share one meter.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from lark import Token, Tree
from msgspec import Struct

from relevo import limits
from relevo.errors import ExpressionFailed
from relevo.kernel.expressions import to_python
from relevo.kernel.expressions.costs import Run
from relevo.kernel.expressions.sqlfilter import (
    GRAMMAR,
    TREE_DEPTH_MAX,
    FilterBuilder,
    SystemProperty,
    check_length,
    scope,
)
from relevo.kernel.expressions.syntax import at, place
from relevo.kernel.expressions.values import WHOLE_MAX, fold, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Properties = dict[str, Any]

_CONVERTED_LENGTH_MAX: Final = 64
"""Longer texts are no numbers or UUIDs."""
_CONVERSIONS: Final[dict[tuple[type, type], Callable[[Any], Any]]] = {
    (int, float): float,
    (float, int): int,
    (int, str): str,
    (str, int): int,
    (float, str): repr,
    (str, float): float,
    (UUID, str): str,
    (str, UUID): UUID,
}

_SYSTEM_TYPES: Final[dict[type, tuple[str, Any, Callable[[Any], bool]]]] = {
    str: ("a text", "", lambda _: True),
    int: ("a number from 0 to 9", 0, lambda value: 0 <= value <= limits.MESSAGE_PRIORITY_MAX),
    datetime: ("an instant", None, lambda _: True),
    timedelta: ("a positive duration", None, lambda value: value > timedelta(0)),
}
"""What a system property of a type needs, a value of the type if others convert to it, a test."""


class ActionStatement(Struct, frozen=True):
    """SET with the value's function, or REMOVE without one."""

    name: str
    """Of a user property, as written."""
    system: SystemProperty | None
    value: Run | None


class Action(Struct, frozen=True):
    """The statements of one rule."""

    statements: tuple[ActionStatement, ...]

    def apply(
        self, system: Mapping[str, Any], user: Mapping[str, Any]
    ) -> tuple[Properties, Properties]:
        """Return the changed system properties (by field) and user properties (by name).

        It raises `ExpressionFailed` if a value has no result or does not fit its system property.
        """
        copy = _ChangedProperties(system, user)
        meter = [limits.EXPRESSION_STEPS_MAX]
        for statement in self.statements:
            if statement.value is None:
                copy.remove(statement)
                continue
            value = statement.value(copy.scope, meter)
            if value is not None:
                copy.set(statement, value)
        return copy.system, copy.user


def parse(
    text: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    length_max: int = limits.ACTION_LENGTH_MAX,
) -> Action:
    """Return the action of a text; `InvalidExpression` says where the text is wrong and why."""
    check_length(text, length_max)
    parts = cast(list[Tree[Token]], GRAMMAR.parse(text, "action").children)
    if len(parts) > limits.ACTION_STATEMENTS_MAX:
        what = f"the action has more than {limits.ACTION_STATEMENTS_MAX} statements. Drop some."
        raise at(*place(parts[limits.ACTION_STATEMENTS_MAX]), what)
    builder = FilterBuilder(parameters)
    return Action(tuple(_statement(syntax, builder) for syntax in parts))


def _statement(syntax: Tree[Token], builder: FilterBuilder) -> ActionStatement:
    target, *value = cast(list[Tree[Token]], syntax.children)
    member, known = builder.property(target)
    if known is not None and not known.writable:
        raise at(*place(target), f"sys.{known.name} cannot be changed. Drop the statement.")
    if not value:
        return ActionStatement(member.path[0], known, None)
    run = to_python.metered(builder.build(value[0]), depth_max=TREE_DEPTH_MAX)
    return ActionStatement(member.path[0], known, run)


class _ChangedProperties:
    """The properties that an action changes, and how its statements see them."""

    def __init__(self, system: Mapping[str, Any], user: Mapping[str, Any]) -> None:
        self.system, self.user = dict(system), dict(user)
        self.scope = scope(system, user)
        self._names: dict[str, list[str]] = {}
        """The names that differ only in case, in ordinal order: the first counts."""
        for name in sorted(user):
            self._names.setdefault(fold(name), []).append(name)

    def set(self, statement: ActionStatement, value: Any) -> None:
        if statement.system is not None:
            field = statement.system.field
            self.system[field] = self.scope["sys"][field] = _fitting(statement.system, value)
            return
        folded = fold(statement.name)
        names = self._names.setdefault(folded, [statement.name])
        stored = converted(value, self.user.get(names[0]))
        self.user[names[0]] = self.scope["user"][folded] = stored

    def remove(self, statement: ActionStatement) -> None:
        if statement.system is not None:
            self.system[statement.system.field] = None
            self.scope["sys"].pop(statement.system.field, None)
            return
        folded = fold(statement.name)
        names = self._names.pop(folded, [])
        if names:
            del self.user[names[0]], self.scope["user"][folded]
        if names[1:]:
            self._names[folded] = names[1:]
            self.scope["user"][folded] = self.user[names[1]]


def converted(value: Any, existing: Any) -> Any:
    """Return a value in the type of the one that it replaces, if that loses nothing."""
    kinds = type(value), type(existing)
    if kinds not in _CONVERSIONS or (kinds[0] is str and len(value) > _CONVERTED_LENGTH_MAX):
        return value
    try:
        result = _CONVERSIONS[kinds](value)
        same = _CONVERSIONS[kinds[::-1]](result) == value
    except (ValueError, OverflowError):
        return value
    in_range = type(result) is not int or -WHOLE_MAX - 1 <= result <= WHOLE_MAX
    return result if same and in_range else value


def _fitting(known: SystemProperty, value: Any) -> Any:
    """The value in the type of a system property; fails if it cannot have that value."""
    needs, example, fits = _SYSTEM_TYPES[known.kind]
    result = converted(value, example)
    if type(result) is not known.kind or not fits(result):
        raise ExpressionFailed(f"sys.{known.name} needs {needs} and got {shown(value)}.")
    return result
