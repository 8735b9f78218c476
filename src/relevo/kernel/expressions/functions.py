"""The functions of Power Fx, under the names by which a `FunctionCall` has them.

A function gets its arguments as values; null arguments count as 0 or as empty text. Positions count
from 1, and fractions of positions are cut off. Each function has a cost, by default the size of its
arguments; the back end charges that cost and the length of the resulting text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Decimal
from functools import partial
from typing import Any, Final

from msgspec import Struct

from relevo.errors import ExpressionFailed
from relevo.kernel.expressions.costs import TEXT_LENGTH_MAX, exhausted, searching, walking
from relevo.kernel.expressions.values import (
    PRECISE,
    WHOLE_MAX,
    Number,
    divide,
    number,
    power,
    root,
    settled,
    text,
)

_NUMERIC: Final = re.compile(
    r"[+-]?(\d{1,3}(,\d{3})+|\d+)?(?(1)(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*%?", re.ASCII
)


class ExpressionFunction(Struct, frozen=True):
    """A function: its numbers of arguments, its effect and its cost."""

    least: int
    most: int | None
    apply: Callable[..., Any]
    cost: Callable[..., int] = walking
    """In steps, from the arguments; see `costs`."""


def numeric(value: str) -> Number | None:
    """Return the number that a text writes out (`1,234.5`, `2e3`, `10%`); None if it is none."""
    written = value.strip()
    if not _NUMERIC.fullmatch(written):
        return None
    bare = written.rstrip("%").rstrip().replace(",", "")
    share = written.endswith("%")
    if bare.lstrip("+-").isdigit() and len(bare) < 20 and not share:
        return settled(int(bare))
    result = float(bare) / 100 if share else float(bare)
    return result if math.isfinite(result) else None


def whole_at_least(least: int, value: Any, who: str) -> int:
    """Return a position or a count, cut to a whole number; refuses smaller ones."""
    count = int(number(value, who))
    if count < least:
        raise ExpressionFailed(
            f"{who} needs a position or count of at least {least} and got {count}; check it first."
        )
    return count


def _numbers(who: str, values: Iterable[Any]) -> list[Number]:
    """The numbers among the arguments and in their lists, without blanks."""
    lists = (value if isinstance(value, list) else (value,) for value in values)
    return [number(item, who) for items in lists for item in items if item is not None]


def _sum(*values: Any) -> Number:
    return _total(_numbers("Sum", values))


def _total(values: list[Number]) -> Number:
    return settled(sum(values))


def _average(*values: Any) -> Number:
    numbers = _numbers("Average", values)
    if not numbers:
        raise ExpressionFailed("Average has no numbers to divide by; test the list first.")
    return divide(_total(numbers), len(numbers))


def _least(*values: Any) -> Number:
    return min(_numbers("Min", values), default=0)


def _greatest(*values: Any) -> Number:
    return max(_numbers("Max", values), default=0)


def _mod(a: Number, b: Number) -> Number:
    if b == 0:
        raise ExpressionFailed("Mod was asked to divide by zero; test the divisor with If first.")
    return settled(a % b)


def _round(who: str, rounding: str, given: Any, places: Any = 0) -> Number:
    value, digits = number(given, who), int(number(places, who))
    digits = max(-400, min(400, digits))  # beyond, nothing changes: doubles end at 1e308 and 5e-324
    if type(value) is int and digits >= 0:
        return value
    # By its decimal digits, as people read them: 2.345 is a half although its double is less.
    exact = Decimal(value) if type(value) is int else Decimal(repr(value))
    step = Decimal(1).scaleb(-digits)
    parts = PRECISE.divide(exact, step).to_integral_value(rounding)
    rounded = PRECISE.multiply(parts, step)
    return settled(int(rounded) if digits <= 0 else float(rounded))


def _trim(value: str) -> str:
    while "  " in value:
        value = value.replace("  ", " ")
    return value.strip(" ")


def _left(value: Any, count: Any) -> str:
    return text(value, "Left")[: whole_at_least(0, count, "Left")]


def _right(value: Any, count: Any) -> str:
    written = text(value, "Right")
    return written[max(0, len(written) - whole_at_least(0, count, "Right")) :]


def _mid(value: Any, first: Any, count: Any = WHOLE_MAX) -> str:
    start = whole_at_least(1, first, "Mid") - 1
    return text(value, "Mid")[start : start + whole_at_least(0, count, "Mid")]


def _find(part: Any, within: Any, first: Any = 1) -> int | None:
    sought, whole = text(part, "Find"), text(within, "Find")
    start = whole_at_least(1, first, "Find")
    if start > len(whole) + 1:
        raise ExpressionFailed(f"Find cannot start at {start} in {len(whole)} characters.")
    place = whole.find(sought, start - 1)
    return None if place < 0 else place + 1


def _substitute(value: Any, old: Any, new: Any, *which: Any) -> str:
    whole, former, latter = (text(each, "Substitute") for each in (value, old, new))
    chosen = [whole_at_least(1, each, "Substitute") for each in which]
    if not former:
        return whole
    if not chosen:
        if len(whole) + len(latter) * whole.count(former) > TEXT_LENGTH_MAX:
            raise exhausted()
        return whole.replace(former, latter)
    pieces = whole.split(former, min(chosen[0], WHOLE_MAX))
    if len(pieces) <= chosen[0]:
        return whole
    return former.join(pieces[:-1]) + latter + pieces[-1]


def _substituting(value: Any, old: Any, new: Any, *_: Any) -> int:
    return 2 * searching(old, value) + walking(new)  # one search counts, one replaces


def _value(value: Any) -> Number | None:
    if value is None or value == "":
        return None
    if value is True or value is False:
        return int(value)
    result = numeric(value) if isinstance(value, str) else number(value, "Value")
    if result is None:
        raise ExpressionFailed(f'Value cannot read "{value[:40]}" as a number; test IsNumeric.')
    return result


def _is_numeric(value: Any) -> bool:
    if isinstance(value, str):
        return numeric(value) is not None
    return type(value) in (int, float)


def _concatenate(*values: Any) -> str:
    return "".join([text(value, "Concatenate") for value in values])


def _of_text(who: str, apply: Callable[[str], Any]) -> ExpressionFunction:
    return ExpressionFunction(1, 1, lambda value: apply(text(value, who)))


def _of_number(who: str, apply: Callable[[Number], Number]) -> ExpressionFunction:
    return ExpressionFunction(1, 1, lambda value: apply(number(value, who)))


def _of_numbers(who: str, apply: Callable[[Number, Number], Number]) -> ExpressionFunction:
    return ExpressionFunction(2, 2, lambda a, b: apply(number(a, who), number(b, who)))


FUNCTIONS: Final[dict[str, ExpressionFunction]] = {
    "Abs": _of_number("Abs", abs),
    "Average": ExpressionFunction(1, None, _average),
    "Concatenate": ExpressionFunction(1, None, _concatenate),
    "Find": ExpressionFunction(2, 3, _find, searching),
    "Int": _of_number("Int", lambda value: settled(math.floor(value))),
    "IsBlank": ExpressionFunction(1, 1, lambda value: value is None or value == ""),
    "IsNumeric": ExpressionFunction(1, 1, _is_numeric),
    "Left": ExpressionFunction(2, 2, _left),
    "Len": _of_text("Len", len),
    "Lower": _of_text("Lower", str.lower),
    "Max": ExpressionFunction(1, None, _greatest),
    "Mid": ExpressionFunction(2, 3, _mid),
    "Min": ExpressionFunction(1, None, _least),
    "Mod": _of_numbers("Mod", _mod),
    "Power": _of_numbers("Power", power),
    "Right": ExpressionFunction(2, 2, _right),
    "Round": ExpressionFunction(1, 2, partial(_round, "Round", ROUND_HALF_UP)),
    "RoundDown": ExpressionFunction(1, 2, partial(_round, "RoundDown", ROUND_DOWN)),
    "RoundUp": ExpressionFunction(1, 2, partial(_round, "RoundUp", ROUND_UP)),
    "Sqrt": _of_number("Sqrt", root),
    "Substitute": ExpressionFunction(3, 4, _substitute, _substituting),
    "Sum": ExpressionFunction(1, None, _sum),
    "Text": _of_text("Text", lambda value: value),
    "Trim": _of_text("Trim", _trim),
    "Upper": _of_text("Upper", str.upper),
    "Value": ExpressionFunction(1, 1, _value),
}
"""By name."""
