"""The front end for SQL filters, the language of subscription rules (Azure Service Bus).

    parse("Priority = 'high' AND Total > 100")                 the tree
    matches = compiled("Priority = 'high' AND Total > 100")    the function
    matches(scope({}, {"priority": "high", "Total": 250}))     True

Logic has three values: True, False and None for unknown, and only True selects. Names, parameters
and conditions are checked when the text is read, so a stored filter fails only because of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeGuard, cast
from uuid import UUID

from lark import Token, Tree
from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidExpression
from relevo.kernel.expressions import to_python
from relevo.kernel.expressions.filter_functions import NEW_ID, PROPERTY
from relevo.kernel.expressions.syntax import (
    VALUE,
    Grammar,
    TreeBuilder,
    at,
    place,
    place_of,
    similar,
)
from relevo.kernel.expressions.tree import (
    NULL,
    Arithmetic,
    ArithmeticOperator,
    Compare,
    CompareOperator,
    Constant,
    Exists,
    Expression,
    FunctionCall,
    In,
    IsNull,
    Like,
    List,
    Logic,
    Member,
    Name,
    Negate,
    Not,
    Rules,
)
from relevo.kernel.expressions.values import WHOLE_MAX, fold, shown

Predicate = Callable[[Mapping[str, Any]], bool | None]

RULES: Final = Rules(nulls="unknown", mixed="unknown", arithmetic="checked", uuids="written")
SYSTEM: Final = Name("sys")
USER: Final = Name("user")
TREE_DEPTH_MAX: Final = 2 * limits.EXPRESSION_DEPTH_MAX
"""`a NOT IN (b)` is one level of the text and three of the tree."""
GRAMMAR: Final = Grammar(
    "sqlfilter.lark",
    starts=("filter", "action"),
    expected={
        "INTEGER": VALUE,
        "NAME": "a name",
        "COMPARE": "a comparison",
        "PLUS": "an operator",
        "_AND": "AND",
        "_SET": "SET",
        "EQUAL": "`=`",
        "LPAR": "`(`",
        "COMMA": "`,`",
        "RPAR": "`)`",
        "$END": "the end",
    },
    hints={
        "'": "Close the text with ', and write '' for a quote inside it.",
        '"': 'Close the name with ", and write "" for a quote inside it; texts have single quotes.',
        "[": "Close the name with ], and write ]] for a bracket inside it.",
        "=": "Write a single = to compare.",
        "&": "Write AND.",
        "|": "Write OR.",
        "!": "Write NOT, or <> for unequal.",
        ",": "Separate statements with semicolons, and the values of a list with commas.",
        "": "Complete the text; perhaps a parenthesis is not closed.",
    },
)
_CONDITIONS: Final = frozenset(
    {"disjunction", "conjunction", "inverted", "compared", "is_null", "is_not_null", "in"}
    | {"not_in", "like", "not_like", "exists", "true", "false"}
)
"""The names in the grammar of what is true, false or unknown."""
_PARAMETER_TYPES: Final = (bool, float, str, bytes, UUID, timedelta, type(None))


class SystemProperty(Struct, frozen=True):
    """A property that every message has, under its name after `sys.`."""

    name: str
    field: str
    """The message's field that holds it."""
    kind: type = str
    writable: bool = True
    """Whether an action may change it."""


SYSTEM_PROPERTIES: Final = (
    SystemProperty("MessageId", "message_id"),
    SystemProperty("CorrelationId", "correlation_id"),
    SystemProperty("To", "to"),
    SystemProperty("ReplyTo", "reply_to"),
    SystemProperty("Label", "subject"),
    SystemProperty("Subject", "subject"),
    SystemProperty("SessionId", "session_id"),
    SystemProperty("ReplyToSessionId", "reply_to_session_id"),
    SystemProperty("ContentType", "content_type"),
    SystemProperty("Priority", "priority", int),
    SystemProperty("EnqueuedTimeUtc", "enqueued_at", datetime, writable=False),
    SystemProperty("ScheduledEnqueueTimeUtc", "at", datetime),
    SystemProperty("TimeToLive", "ttl", timedelta),
)
_SYSTEM_BY_NAME: Final = {known.name.lower(): known for known in SYSTEM_PROPERTIES}


def parse(
    text: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    length_max: int = limits.FILTER_LENGTH_MAX,
) -> Expression:
    """Return the tree of a filter; `InvalidExpression` says where the text is wrong and why.

    `parameters` are the values of `@name`, with or without the @.
    """
    check_length(text, min(length_max, limits.FILTER_LENGTH_LARGEST))
    return FilterBuilder(parameters).condition(GRAMMAR.parse(text, "filter"))


def compiled(
    text: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    length_max: int = limits.FILTER_LENGTH_MAX,
) -> Predicate:
    """Return the function of a filter, from a `scope` to True, False or None.

    It raises `ExpressionFailed` for a message without a result, for instance on overflow.
    """
    tree = parse(text, parameters=parameters, length_max=length_max)
    return to_python.function(tree, depth_max=TREE_DEPTH_MAX)


def scope(system: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values that filters see: system properties by field, user properties by name.

    Names ignore case. Of two that differ only in case, the ordinally smallest counts. A system
    property that is null is missing. Instants have a time zone.
    """
    return {
        SYSTEM.name: {field: value for field, value in system.items() if value is not None},
        USER.name: {fold(name): user[name] for name in sorted(user, reverse=True)},
    }


def check_length(text: str, length_max: int) -> None:
    """Refuse a text that is too long."""
    if len(text) > length_max:
        what = f"it has {len(text):,} characters and may have {length_max:,}. Shorten it."
        raise at(*place_of(text, length_max), what)


class FilterBuilder(TreeBuilder):
    """Builds the trees of filters and of the values in actions."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__(limits.EXPRESSION_DEPTH_MAX)
        self.parameters: dict[str, Any] = {}
        for name, value in (parameters or {}).items():
            folded = fold(name.removeprefix("@"))
            if folded in self.parameters:
                raise InvalidExpression(f"The parameter @{folded[:64]} is given twice. Drop one.")
            if not _is_parameter(value):
                raise InvalidExpression(
                    f"The parameter @{folded[:64]} is {shown(value)}, which is not allowed; use a "
                    "text, a number of 64 bits, a boolean, bytes, a UUID, a datetime with a time "
                    "zone, or a timedelta."
                )
            self.parameters[folded] = value

    def condition(self, syntax: Tree[Token]) -> Expression:
        """Return the node of a part that must be a condition: a value alone selects nothing."""
        inner = syntax
        while inner.data == "group":
            inner = cast(Tree[Token], inner.children[0])
        if inner.data not in _CONDITIONS:
            raise at(
                *place(inner),
                "a value stands where a condition is expected. Compare it, as in a = 1.",
            )
        return self.build(syntax)

    def property(self, syntax: Tree[Token]) -> tuple[Member, SystemProperty | None]:
        """Return the node of a property, and which one it is if it belongs to the system."""
        *scopes, token = cast(list[Token], syntax.children)
        name = unquoted(token)
        if not name:
            raise at(*place(token), "the name is empty. Write the name of a property.")
        if scopes and scopes[0].lower() not in (SYSTEM.name, USER.name):
            raise similar("scope", scopes[0], (SYSTEM.name, USER.name))
        if not scopes or scopes[0].lower() == USER.name:
            return Member(USER, (name,), "folded"), None
        known = _SYSTEM_BY_NAME.get(name.lower())
        if known is None:
            raise similar("system property", token, (known.name for known in SYSTEM_PROPERTIES))
        return Member(SYSTEM, (known.field,)), known

    def _disjunction(self, parts: list[Any]) -> Expression:
        return Logic("or", tuple(map(self.condition, parts)), RULES)

    def _conjunction(self, parts: list[Any]) -> Expression:
        return Logic("and", tuple(map(self.condition, parts)), RULES)

    def _inverted(self, parts: list[Any]) -> Expression:
        return Not(self.condition(parts[0]), RULES)

    def _compared(self, parts: list[Any]) -> Expression:
        left, right = self.all(parts[::2])
        sign = "<>" if parts[1] == "!=" else str(parts[1])
        return Compare(cast(CompareOperator, sign), left, right, RULES)

    def _is_null(self, parts: list[Any]) -> Expression:
        (operand,) = parts
        if operand.data != "property":
            raise at(*place(operand), "IS NULL tests properties only. Name a property before it.")
        return IsNull(self.build(operand))

    def _is_not_null(self, parts: list[Any]) -> Expression:
        return Not(self._is_null(parts), RULES)

    def _in(self, parts: list[Any]) -> Expression:
        item, *items = parts
        if len(items) > limits.FILTER_LIST_MAX:
            what = f"the list has more than {limits.FILTER_LIST_MAX} values. Split it with OR."
            raise at(*place(items[limits.FILTER_LIST_MAX]), what)
        return In(self.build(item), List(self.all(items)), RULES)

    def _not_in(self, parts: list[Any]) -> Expression:
        return Not(self._in(parts), RULES)

    def _like(self, parts: list[Any]) -> Expression:
        text, pattern, *escape = self.all(parts)
        return Like(text, pattern, RULES, *escape)

    def _not_like(self, parts: list[Any]) -> Expression:
        return Not(self._like(parts), RULES)

    def _sum(self, parts: list[Any]) -> Expression:
        signs = [cast(ArithmeticOperator, str(sign)) for sign in parts[1::2]]
        first, *rest = self.all(parts[::2])
        return Arithmetic(first, tuple(zip(signs, rest, strict=True)), RULES)

    _product = _sum

    def _negated(self, parts: list[Any]) -> Expression:
        (part,) = parts
        if part.data == "integer" and part.children[0].lstrip("0") == str(WHOLE_MAX + 1):
            return Constant(-WHOLE_MAX - 1)
        operand = self.build(part)
        if _is_number(operand) and operand != Constant(-WHOLE_MAX - 1):
            return Constant(-operand.value)
        return Negate(operand, RULES)

    def _positive(self, parts: list[Any]) -> Expression:
        operand = self.build(parts[0])
        return operand if _is_number(operand) else Arithmetic(Constant(0), (("+", operand),), RULES)

    def _integer(self, parts: list[Any]) -> Expression:
        (token,) = parts
        digits = token.lstrip("0") or "0"
        if len(digits) > len(str(WHOLE_MAX)) or int(digits) > WHOLE_MAX:
            raise at(*place(token), f"the number {token[:20]} has more than 64 bits. Shorten it.")
        return Constant(int(digits))

    def _decimal(self, parts: list[Any]) -> Expression:
        (token,) = parts
        value = float(token)
        if not math.isfinite(value):
            raise at(*place(token), f"the number {token[:20]} is too large. Write a smaller one.")
        return Constant(value)

    def _string(self, parts: list[Any]) -> Expression:
        return Constant(str(parts[0])[1:-1].replace("''", "'"))

    def _true(self, _: list[Any]) -> Expression:
        return Constant(True)

    def _false(self, _: list[Any]) -> Expression:
        return Constant(False)

    def _null(self, _: list[Any]) -> Expression:
        return NULL

    def _parameter(self, parts: list[Any]) -> Expression:
        (token,) = parts
        name = fold(token[1:])
        if name not in self.parameters:
            raise at(*place(token), f"the parameter {token[:64]} has no value. Give it one.")
        return Constant(self.parameters[name])

    def _property(self, parts: list[Any]) -> Expression:
        return self.property(Tree("property", parts))[0]

    def _exists(self, parts: list[Any]) -> Expression:
        return Exists(self.property(parts[0])[0])

    def _call(self, parts: list[Any]) -> Expression:
        token, *arguments = parts
        name = token.lower()
        if name not in ("newid", "property", "p"):
            raise similar("function", token, ("newid", "property", "p", "EXISTS"))
        if name == "newid":
            if arguments:
                raise at(*place(token), "newid takes no arguments. Write newid().")
            return FunctionCall(NEW_ID, ())
        if not arguments:
            raise at(*place(token), f"{name} needs a name. Write {name}('…').")
        return FunctionCall(PROPERTY, (USER, *self.all(arguments)))

    def _group(self, parts: list[Any]) -> Expression:
        return self.build(parts[0])


def _is_parameter(value: Any) -> bool:
    if type(value) is int:
        return -WHOLE_MAX - 1 <= value <= WHOLE_MAX
    if type(value) is datetime:
        return value.utcoffset() is not None
    return type(value) in _PARAMETER_TYPES


def _is_number(node: Expression) -> TypeGuard[Constant]:
    return isinstance(node, Constant) and type(node.value) in (int, float)


def unquoted(token: Token) -> str:
    """Return the name that a token stands for, without its brackets or quotes."""
    text = str(token)
    if text.startswith("["):
        return text[1:-1].replace("]]", "]")
    return text[1:-1].replace('""', '"') if text.startswith('"') else text
