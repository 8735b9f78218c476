"""Arithmetic by the rules of C#, which SQL filters use (`Rules.arithmetic` is `checked`).

Whole numbers have 64 bits and stay whole: `-7 / 2` is -3 and `-7 % 2` is -1. A floating operand
makes the result floating, by IEEE 754. `+` joins two texts. An instant minus an instant is a
duration; a duration can be added to an instant and subtracted from it. Other operands fail.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions.costs import Meter, Run, charge, walking
from relevo.kernel.expressions.values import WHOLE_MAX, Number, shown

if TYPE_CHECKING:
    from relevo.kernel.expressions.tree import ArithmeticOperator

Operation = Callable[[Any, Any], Any]

_NUMBERS: Final = (int, float)


def chain(first: Run, rest: Sequence[tuple[ArithmeticOperator, Run]]) -> Run:
    """Return the function of a chain of operators; null as an operand makes the result null."""
    steps = [(_operation(sign), operand) for sign, operand in rest]

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        total = first(scope, meter)
        for apply, operand in steps:
            if total is None:
                return None
            value = operand(scope, meter)
            if value is None:
                return None
            if type(total) is str:
                charge(meter, walking(total, value))
            total = apply(total, value)
        return total

    return run


def negation(operand: Run) -> Run:
    """Return the function of a sign before an operand."""

    def run(scope: Mapping[str, Any], meter: Meter) -> Any:
        value = operand(scope, meter)
        return None if value is None else negative(value)

    return run


def _operation(sign: ArithmeticOperator) -> Operation:
    """Return the function of an operator; it raises `ExpressionFailed` for operands it lacks."""
    whole, floating = _WHOLE.get(sign), _FLOATING.get(sign)

    def apply(a: Any, b: Any) -> Any:
        kinds = type(a), type(b)
        if kinds == (int, int) and whole is not None:
            return in_64_bits(whole(a, b))
        if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS and floating is not None:
            return floating(float(a), float(b))
        typed = _TYPED.get((sign, *kinds))
        if typed is None:
            raise ExpressionFailed(
                f"`{sign}` cannot take {shown(a)} and {shown(b)}; test their types first."
            )
        return typed(a, b)

    return apply


def negative(value: Any) -> Number:
    """Return a number with the opposite sign."""
    if type(value) is int:
        return in_64_bits(-value)
    if type(value) is float:
        return -value
    raise ExpressionFailed(f"`-` needs a number and got {shown(value)}; test its type first.")


def in_64_bits(value: int) -> int:
    """Return a whole number; fails if it needs more than 64 bits."""
    if -WHOLE_MAX - 1 <= value <= WHOLE_MAX:
        return value
    raise ExpressionFailed("A whole number left the range of 64 bits; calculate with smaller ones.")


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise ExpressionFailed(
            f"Dividing {shown(a)} by zero has no result; test the divisor first."
        )
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - in_64_bits(_quotient(a, b)) * b


def _float_quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def _float_remainder(a: float, b: float) -> float:
    if b == 0 or math.isinf(a):
        return math.nan
    return math.fmod(a, b)


_WHOLE: Final[dict[ArithmeticOperator, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_FLOATING: Final[dict[ArithmeticOperator, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _float_quotient,
    "%": _float_remainder,
}
_TYPED: Final[dict[tuple[ArithmeticOperator, type, type], Operation]] = {
    ("+", str, str): operator.add,
    ("+", datetime, timedelta): operator.add,
    ("-", datetime, timedelta): operator.sub,
    ("-", datetime, datetime): operator.sub,
}
