"""Labels and how they are compared: one truth table for selectors of workers and of queues.

holds("greaterThan", 7, 5)       # True
holds("equal", "7", 7)           # False: nothing is converted
holds("notEqual", None, "red")   # True: a label that is missing differs from every value
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = str | int | float | bool
"""The type of a label's value. A boolean is not a number here, unlike in Python."""

Operator = Literal[
    "equal", "notEqual", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"
]

OPERATORS: Final[tuple[Operator, ...]] = (
    "equal",
    "notEqual",
    "lessThan",
    "lessThanOrEqual",
    "greaterThan",
    "greaterThanOrEqual",
)

ORDERINGS: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "lessThan": operator.lt,
    "lessThanOrEqual": operator.le,
    "greaterThan": operator.gt,
    "greaterThanOrEqual": operator.ge,
}
"""The operators that need an order, as functions of two numbers or two texts."""


def holds(operator: Operator, label: Value | None, value: Value | None) -> bool:
    """Whether a label stands to a selector's value as the operator says.

    None is a label that is missing, or a selector without a value. Values of different kinds are
    never equal and have no order, and booleans have none at all.
    """
    if operator == "equal":
        return same(label, value)
    if operator == "notEqual":
        return not same(label, value)
    ordered = kind(label) == kind(value) and kind(label) in ("number", "text")
    return ordered and ORDERINGS[operator](label, value)  # type: ignore[arg-type]


def same(label: Value | None, value: Value | None) -> bool:
    """Whether two values are equal and of one kind: 7 is 7.0, but neither "7" nor true is."""
    return isinstance(label, bool) == isinstance(value, bool) and label == value


def kind(value: Value | None) -> Literal["boolean", "number", "text", "missing"]:
    """Return the kind of a value; only values of one kind can be equal."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def identity(value: Value | None) -> tuple[bool, Value | None]:
    """Return a key that is equal for exactly the values that are `same`."""
    return isinstance(value, bool), value
