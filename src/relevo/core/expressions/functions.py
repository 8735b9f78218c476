"""The functions that a `Call` can name, as Power Fx defines them.

A function gets its arguments as values and the meter; null arguments count as 0 or as empty text.
Positions count from 1, and fractions of positions are cut off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Decimal
from functools import partial
from typing import Any, Final

from msgspec import Struct

from relevo.core.expressions.values import (
    CHARACTERS_PER_STEP,
    PRECISE,
    WHOLE_MAX,
    Meter,
    Number,
    charge,
    divide,
    number,
    power,
    root,
    settled,
    text,
)
from relevo.errors import ExpressionFailed

Arguments = list[Any]

_NUMERIC: Final = re.compile(
    r"[+-]?(\d{1,3}(,\d{3})+|\d+)?(?(1)(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?\s*%?", re.ASCII
)


class Function(Struct, frozen=True):
    """A function: how many arguments it takes, and what it does with them."""

    least: int
    most: int | None
    apply: Callable[[Arguments, Meter], Any]


def numeric(value: str) -> Number | None:
    """Return the number that a text writes out (`1,234.5`, `2e3`, `10%`); None if it is none."""
    written = value.strip()
    if not _NUMERIC.fullmatch(written):
        return None
    bare = written.rstrip("%").rstrip().replace(",", "")
    share = written.endswith("%")
    if bare.lstrip("+-").isdigit() and len(bare) < 20 and not share:
        return settled(int(bare))
    found = float(bare) / 100 if share else float(bare)
    return found if math.isfinite(found) else None


def whole_at_least(least: int, value: Any, who: str) -> int:
    """Return a position or a count, cut to a whole number; refuses smaller ones."""
    found = int(number(value, who))
    if found < least:
        raise ExpressionFailed(
            f"{who} needs a position or count of at least {least} and got {found}; check it first."
        )
    return found


def _numbers(who: str, arguments: Arguments) -> list[Number]:
    """The numbers among arguments and the lists among them; blanks are left out."""
    flat = [v for a in arguments for v in (a if isinstance(a, list) else (a,)) if v is not None]
    return [number(value, who) for value in flat]


def _sum(arguments: Arguments, _: Meter) -> Number:
    return _total(_numbers("Sum", arguments))


def _total(values: list[Number]) -> Number:
    return settled(sum(values))


def _average(arguments: Arguments, _: Meter) -> Number:
    values = _numbers("Average", arguments)
    if not values:
        raise ExpressionFailed("Average has no numbers to divide by; test the list first.")
    return divide(_total(values), len(values))


def _least(arguments: Arguments, _: Meter) -> Number:
    return min(_numbers("Min", arguments), default=0)


def _greatest(arguments: Arguments, _: Meter) -> Number:
    return max(_numbers("Max", arguments), default=0)


def _mod(arguments: Arguments, _: Meter) -> Number:
    a, b = (number(value, "Mod") for value in arguments)
    if b == 0:
        raise ExpressionFailed("Mod was asked to divide by zero; test the divisor with If first.")
    return settled(a % b)


def _round(who: str, rounding: str, arguments: Arguments, _: Meter) -> Number:
    value = number(arguments[0], who)
    digits = int(number(arguments[1], who)) if len(arguments) > 1 else 0
    digits = max(-400, min(400, digits))  # beyond, nothing changes: doubles end at 1e308 and 5e-324
    if type(value) is int and digits >= 0:
        return value
    # By its decimal digits, as people read them: 2.345 is a half although its double is less.
    exact = Decimal(value) if type(value) is int else Decimal(repr(value))
    step = Decimal(1).scaleb(-digits)
    parts = PRECISE.divide(exact, step).to_integral_value(rounding)
    rounded = PRECISE.multiply(parts, step)
    return settled(int(rounded) if digits <= 0 else float(rounded))


def _int(arguments: Arguments, _: Meter) -> Number:
    return settled(math.floor(number(arguments[0], "Int")))


def _trim(arguments: Arguments, _: Meter) -> str:
    return " ".join(part for part in text(arguments[0], "Trim").split(" ") if part)


def _left(arguments: Arguments, _: Meter) -> str:
    return text(arguments[0], "Left")[: whole_at_least(0, arguments[1], "Left")]


def _right(arguments: Arguments, _: Meter) -> str:
    value = text(arguments[0], "Right")
    return value[max(0, len(value) - whole_at_least(0, arguments[1], "Right")) :]


def _mid(arguments: Arguments, _: Meter) -> str:
    value = text(arguments[0], "Mid")
    start = whole_at_least(1, arguments[1], "Mid") - 1
    count = whole_at_least(0, arguments[2], "Mid") if len(arguments) > 2 else len(value)
    return value[start : start + count]


def _find(arguments: Arguments, _: Meter) -> int | None:
    part, within = text(arguments[0], "Find"), text(arguments[1], "Find")
    start = whole_at_least(1, arguments[2], "Find") if len(arguments) > 2 else 1
    if start > len(within) + 1:
        raise ExpressionFailed(f"Find cannot start at {start} in {len(within)} characters.")
    found = within.find(part, start - 1)
    return None if found < 0 else found + 1


def _substitute(arguments: Arguments, meter: Meter) -> str:
    value, old, new = (text(one, "Substitute") for one in arguments[:3])
    which = whole_at_least(1, arguments[3], "Substitute") if len(arguments) > 3 else None
    if not old:
        return value
    charge(meter, (len(new) * value.count(old) + len(value)) // CHARACTERS_PER_STEP)
    if which is None:
        return value.replace(old, new)
    pieces = value.split(old, min(which, WHOLE_MAX))
    if len(pieces) <= which:
        return value
    return old.join(pieces[:-1]) + new + pieces[-1]


def _value(arguments: Arguments, _: Meter) -> Number | None:
    (value,) = arguments
    if value is None or value == "":
        return None
    if value is True or value is False:
        return int(value)
    found = numeric(value) if isinstance(value, str) else number(value, "Value")
    if found is None:
        raise ExpressionFailed(f'Value cannot read "{value[:40]}" as a number; test IsNumeric.')
    return found


def _is_numeric(arguments: Arguments, _: Meter) -> bool:
    (value,) = arguments
    if isinstance(value, str):
        return numeric(value) is not None
    return type(value) in (int, float)


def _concatenate(arguments: Arguments, _: Meter) -> str:
    return "".join([text(value, "Concatenate") for value in arguments])


def _of_text(who: str, apply: Callable[[str], Any]) -> Function:
    return Function(1, 1, lambda arguments, _: apply(text(arguments[0], who)))


def _of_numbers(who: str, count: int, apply: Callable[..., Number]) -> Function:
    return Function(count, count, lambda values, _: apply(*(number(v, who) for v in values)))


FUNCTIONS: Final[dict[str, Function]] = {
    "Abs": _of_numbers("Abs", 1, abs),
    "Average": Function(1, None, _average),
    "Concatenate": Function(1, None, _concatenate),
    "Find": Function(2, 3, _find),
    "Int": Function(1, 1, _int),
    "IsBlank": Function(1, 1, lambda values, _: values[0] is None or values[0] == ""),
    "IsNumeric": Function(1, 1, _is_numeric),
    "Left": Function(2, 2, _left),
    "Len": _of_text("Len", len),
    "Lower": _of_text("Lower", str.lower),
    "Max": Function(1, None, _greatest),
    "Mid": Function(2, 3, _mid),
    "Min": Function(1, None, _least),
    "Mod": Function(2, 2, _mod),
    "Power": _of_numbers("Power", 2, power),
    "Right": Function(2, 2, _right),
    "Round": Function(1, 2, partial(_round, "Round", ROUND_HALF_UP)),
    "RoundDown": Function(1, 2, partial(_round, "RoundDown", ROUND_DOWN)),
    "RoundUp": Function(1, 2, partial(_round, "RoundUp", ROUND_UP)),
    "Sqrt": _of_numbers("Sqrt", 1, root),
    "Substitute": Function(3, 4, _substitute),
    "Sum": Function(1, None, _sum),
    "Text": _of_text("Text", lambda value: value),
    "Trim": Function(1, 1, _trim),
    "Upper": _of_text("Upper", str.upper),
    "Value": Function(1, 1, _value),
}
"""By the name under which a `Call` has them."""
