"""What SQL filters mean, written for clarity: a slow evaluator that shares no code with ours."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from relevo.kernel.expressions.filter_functions import PROPERTY
from relevo.kernel.expressions.tree import (
    Arithmetic,
    Compare,
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
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING = object()


class Failed(Exception):
    """The filter has no result for the message."""


class Reference:
    """Evaluates trees for one message."""

    def __init__(self, system: Mapping[str, Any], user: Mapping[str, Any]) -> None:
        self.system = system
        self.user = user

    def named(self, name: str) -> Any:
        same = [one for one in self.user if one.lower() == name.lower()]
        return self.user[min(same)] if same else MISSING

    def looked_up(self, node: Member) -> Any:
        if node.of == Name("sys"):
            value = self.system.get(node.path[0])
            return MISSING if value is None else value
        return self.named(node.path[0])

    def value(self, node: Expression) -> Any:
        match node:
            case Constant(value=value):
                return value
            case Member():
                found = self.looked_up(node)
                return None if found is MISSING else found
            case Exists(member=member):
                return self.looked_up(member) is not MISSING
            case IsNull(operand=operand):
                return self.value(operand) is None
            case FunctionCall(function=name, arguments=(_, argument)) if name == PROPERTY:
                return self.property(self.value(argument))
            case Not(operand=operand):
                return {True: False, False: True, None: None}[self.value(operand)]
            case Logic():
                return self.logic(node)
            case Compare(operator=sign, left=left, right=right):
                return compared(sign, self.value(left), self.value(right))
            case In(item=item, container=List(items=items)):
                wanted, *rest = [self.value(one) for one in (item, *items)]
                answers = [compared("=", wanted, one) for one in rest]
                return True if True in answers else None if None in answers else False
            case Like():
                return self.like(node)
            case Negate(operand=operand):
                return negated(self.value(operand))
            case Arithmetic(first=first, rest=rest):
                total = self.value(first)
                for each, operand in rest:
                    if total is not None:
                        total = calculated(each, total, self.value(operand))
                return total
            case _:
                raise AssertionError(node)

    def property(self, name: Any) -> Any:
        if name is None:
            return None
        if not isinstance(name, str):
            raise Failed
        found = self.named(name)
        return None if found is MISSING else found

    def logic(self, node: Logic) -> bool | None:
        decisive, seen = node.operator == "or", set()
        for operand in node.operands:
            seen.add(self.value(operand))
            if decisive in seen:
                return decisive
        return None if None in seen else not decisive

    def like(self, node: Like) -> bool | None:
        text, pattern = self.value(node.text), self.value(node.pattern)
        escape = "" if node.escape is None else self.value(node.escape)
        if text is None or pattern is None or escape is None:
            return None
        if not isinstance(escape, str) or len(escape) != (node.escape is not None):
            raise Failed
        if not isinstance(pattern, str):
            return None
        parts = split(pattern, escape)
        return matched(parts, text) if isinstance(text, str) else None


def split(pattern: str, escape: str) -> tuple[tuple[str, bool], ...]:
    """Characters, each with whether it is ordinary."""
    found, rest = [], list(pattern)
    while rest:
        one = rest.pop(0)
        if escape and one == escape:
            if not rest or rest[0] not in ("%", "_", escape):
                raise Failed
            found.append((rest.pop(0), True))
        else:
            found.append((one, one not in "%_"))
    return tuple(found)


def matched(pattern: tuple[tuple[str, bool], ...], text: str) -> bool:
    """The definition of LIKE, tried at every place."""

    @cache
    def from_(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(text)
        one, ordinary = pattern[i]
        if not ordinary and one == "%":
            return from_(i + 1, j) or (j < len(text) and from_(i, j + 1))
        fits = j < len(text) and (not ordinary or text[j] == one)
        return fits and from_(i + 1, j + 1)

    return from_(0, 0)


def compared(sign: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    kinds = {kind(a), kind(b)}
    if kinds == {"UUID", "str"}:
        text = a if isinstance(a, str) else b
        try:
            if str(UUID(text)) != text:
                return None
        except ValueError:
            return None
        a, b = str(a), str(b)
    elif len(kinds) > 1 or (kinds == {"bool"} and sign not in ("=", "<>")):
        return None
    less, same, greater = bool(a < b), bool(a == b), bool(a > b)
    return {
        "=": same, "<>": not same, "<": less, ">": greater,
        "<=": less or same, ">=": greater or same,
    }[sign]  # fmt: skip


def kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def negated(value: Any) -> Any:
    if value is None:
        return None
    if kind(value) != "number":
        raise Failed
    return bounded(-value)


N = TypeVar("N", int, float)


def bounded(value: N) -> N:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise Failed
    return value


def calculated(sign: str, a: Any, b: Any) -> Any:
    if b is None:
        return None
    types = type(a), type(b)
    if types == (str, str) and sign == "+":
        return a + b
    if types in ((datetime, timedelta), (datetime, datetime)):
        try:
            if sign == "-":
                return a - b
            if sign == "+" and types[1] is timedelta:
                return a + b
        except OverflowError:
            raise Failed from None
    if kind(a) != "number" or kind(b) != "number":
        raise Failed
    if types == (int, int):
        return whole(sign, a, b)
    return floating(sign, float(a), float(b))


def whole(sign: str, a: int, b: int) -> int:
    if sign in "/%":
        if b == 0:
            raise Failed
        quotient = bounded(math.trunc(Fraction(a, b)))
        return quotient if sign == "/" else a - quotient * b
    return bounded({"+": a + b, "-": a - b, "*": a * b}[sign])


def floating(sign: str, a: float, b: float) -> float:
    if sign == "%":
        return math.fmod(a, b) if b and not math.isinf(a) else math.nan
    if sign != "/":
        return {"+": a + b, "-": a - b, "*": a * b}[sign]
    if b:
        return a / b
    if not a or math.isnan(a):
        return math.nan
    return math.inf if math.copysign(1, a) == math.copysign(1, b) else -math.inf
