"""The values of expressions: their types, conversions, comparisons and arithmetic.

Values are those of JSON (null, booleans, numbers, texts, lists, records), and for some front ends
times, durations, UUIDs and bytes. A boolean is not a number, although it is one in Python. The
arithmetic here is the `widening` one of `Rules`; `checked` has the other.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

from relevo.errors import ExpressionFailed

if TYPE_CHECKING:
    from relevo.kernel.expressions.tree import ArithmeticOperator, CompareOperator, Rules

Number = int | float
Comparison = Callable[[Any, Any], bool | None]

WHOLE_MAX: Final = 2**63 - 1
DIGITS_MAX: Final = 10**308
"""Only smaller whole numbers are written out: the time for it grows with the square."""
PRECISE: Final = Context(prec=700, rounding=ROUND_HALF_UP)
"""Wide enough for every digit of a finite double, so that quantizing never fails."""

_TEXT: Final = 1
_ORDERED: Final[dict[type, int]] = {
    str: _TEXT,
    int: 2,
    float: 2,
    datetime: 3,
    date: 4,
    timedelta: 5,
    UUID: 6,
    bytes: 7,
}
_EQUAL: Final[dict[type, int]] = {**_ORDERED, bool: 8}
"""Types that compare with each other share a number; types not listed compare with nothing."""
_CANONICAL: Final = re.compile("[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
"""The one text of a UUID; in this form UUIDs and their texts have the same order."""

_APPLY: Final[dict[CompareOperator, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(sign: CompareOperator, rules: Rules) -> Comparison:
    """Return the function that compares two values under a node's rules."""
    apply = _APPLY[sign]
    kinds = _EQUAL if sign in ("=", "<>") else _ORDERED
    folded = rules.case == "folded"
    different = None if rules.mixed == "unknown" else sign == "<>"

    def compare(a: Any, b: Any) -> bool | None:
        kind = kinds.get(type(a))
        if kind is not None and kind == kinds.get(type(b)):
            return apply(fold(a), fold(b)) if folded and kind == _TEXT else apply(a, b)
        if a is None or b is None:
            if rules.nulls == "unknown":
                return None
            return sign in ("=", "<>") and apply(a, b)
        if rules.uuids == "written" and _is_uuid_and_text(a, b):
            return apply(str(a), str(b))
        if type(a) is type(b) and type(a) in (list, dict):
            raise ExpressionFailed(
                f"Comparing {shown(a)} has no result; compare one of its values."
            )
        return different

    return compare


def _is_uuid_and_text(a: Any, b: Any) -> bool:
    text, other = (a, b) if type(a) is str else (b, a)
    return type(other) is UUID and type(text) is str and bool(_CANONICAL.fullmatch(text))


@functools.cache
def folding() -> dict[int, str]:
    """Return every character that has a simple lower case, with that lower case."""
    cased = range(0x1F000)  # nothing above has letter case
    table = {code: chr(code).lower() for code in cased if chr(code).lower() != chr(code)}
    return {code: lower[0] for code, lower in table.items()}  # only İ has two, its simple one first


def fold(text: str) -> str:
    """Return a text in Unicode's simple lower case, character by character.

    The result is that of `folding`: Python's own lower case differs for these two only.
    """
    if not text.isascii():
        text = text.replace("\u0130", "i").replace("\u03a3", "\u03c3")
    return text.lower()


def shown(value: Any) -> str:
    """Return a value as error messages show it; long texts are cut."""
    match value:
        case None:
            return "Blank"
        case bool():
            return "true" if value else "false"
        case str():
            return f'the text "{value if len(value) <= 40 else value[:40] + "…"}"'
        case int() | float():
            return f"the number {value:.17g}"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a record"
        case _:
            return f"a {type(value).__name__}"


def number(value: Any, who: str) -> Number:
    """Return a value as a number; null is 0. Only `Value` converts texts to numbers."""
    if type(value) is int:
        return value if -WHOLE_MAX <= value <= WHOLE_MAX else settled(value)
    if type(value) is float:
        return value
    if value is None:
        return 0
    raise ExpressionFailed(
        f"{who} needs a number and got {shown(value)}; convert it with Value, or test it first."
    )


def text(value: Any, who: str) -> str:
    """Return a value as text: null is empty, numbers and booleans are written out."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        return plain(value)
    raise ExpressionFailed(f"{who} needs a text and got {shown(value)}; use one of its values.")


def plain(value: Number) -> str:
    """Return a number in digits, never with an exponent."""
    if type(value) is int:
        if abs(value) >= DIGITS_MAX:
            raise ExpressionFailed("A whole number has more than 308 digits; use a shorter one.")
        return str(value)
    if value == 0:
        return "0"
    digits = format(Decimal(repr(value)), "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def truth(value: Any, who: str) -> bool | None:
    """Return a value as a condition: a boolean, or null."""
    if value is True or value is False or value is None:
        return value
    raise ExpressionFailed(
        f"{who} needs true or false and got {shown(value)}; compare it with something."
    )


def settled(value: Number) -> Number:
    """Return the result of a calculation within its bounds; fails if it is not finite."""
    if type(value) is int:
        return value if -WHOLE_MAX - 1 <= value <= WHOLE_MAX else float(value)
    if not math.isfinite(value):
        raise ExpressionFailed("A number became too large; calculate with smaller ones.")
    return value


def divide(a: Number, b: Number) -> Number:
    """Return a quotient; whole if whole numbers divide evenly."""
    if b == 0:
        raise ExpressionFailed(
            f"Dividing {shown(a)} by zero has no result; test the divisor with If first."
        )
    if type(a) is int and type(b) is int and a % b == 0:
        return settled(a // b)
    return settled(a / b)


def power(a: Number, b: Number) -> Number:
    """Return a to the power of b; exact for whole results within 64 bits."""
    if a == 0 and b < 0:
        raise ExpressionFailed("Zero has no negative power; test the base with If first.")
    if type(a) is int and type(b) is int and 0 <= b <= 64 and a.bit_length() * b <= 64:
        return settled(a**b)
    try:
        return settled(math.pow(a, b))
    except ValueError:
        _unreal(f"The power {shown(b)} of {shown(a)}")


def remainder(a: Number, b: Number) -> Number:
    """Return the remainder of a division, with the sign of the dividend."""
    if b == 0:
        raise ExpressionFailed(
            f"Dividing {shown(a)} by zero has no remainder; test the divisor with If first."
        )
    if type(a) is int and type(b) is int:
        return settled(a - b * (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1))
    return settled(math.fmod(a, b))


def root(a: Number) -> Number:
    """Return the square root; whole if it is."""
    if a < 0:
        _unreal(f"The square root of {shown(a)}")
    if type(a) is int and math.isqrt(a) ** 2 == a:
        return math.isqrt(a)
    return settled(math.sqrt(a))


def _unreal(what: str) -> NoReturn:
    raise ExpressionFailed(f"{what} is not a real number; test the values with If first.")


ARITHMETIC: Final[dict[ArithmeticOperator, Callable[[Number, Number], Number]]] = {
    "+": lambda a, b: settled(a + b),
    "-": lambda a, b: settled(a - b),
    "*": lambda a, b: settled(a * b),
    "/": divide,
    "%": remainder,
    "^": power,
}
