"""The cost of an evaluation, in steps. Every evaluation has one meter and pays before it works.

A step is at most about a microsecond: one node, one item of a list, `CHARACTERS_PER_STEP` of a
text that is read or made, `COMPARISONS_PER_STEP` characters compared in a search. Nodes are counted
when a function is made, since none runs twice; values add the costs below. The back end charges
them wherever it looks into values (`to_python._charged`), so no function counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from relevo import limits
from relevo.errors import ExpressionFailed

Meter = list[int]
"""A list of one element: the number of steps that an evaluation has left."""

Run = Callable[[Mapping[str, Any], Meter], Any]
"""A compiled node: from the scope and the meter to a value."""

CHARACTERS_PER_STEP: Final = 64
COMPARISONS_PER_STEP: Final = 1_024
_SEQUENCES: Final = (str, bytes)
TEXT_LENGTH_MAX: Final = limits.EXPRESSION_STEPS_MAX * CHARACTERS_PER_STEP
"""No text is longer: making one takes all steps."""


def charge(meter: Meter, steps: int) -> None:
    """Take steps from a meter; fails if it has too few."""
    meter[0] -= steps
    if meter[0] < 0:
        raise exhausted()


def exhausted() -> ExpressionFailed:
    """Return the error for an evaluation that needs too many steps."""
    return ExpressionFailed(
        "The expression takes too many steps for these values; give it shorter lists and texts."
    )


def weight(value: Any) -> int:
    """Return how many steps it takes to walk over a value, and over the texts in a list."""
    if type(value) in _SEQUENCES:
        return len(value) // CHARACTERS_PER_STEP
    if type(value) is list:
        return len(value) + sum(
            len(item) // CHARACTERS_PER_STEP for item in value if type(item) in _SEQUENCES
        )
    return 0


def walking(*values: Any) -> int:
    """Return the cost of looking at all of some values."""
    return sum(map(weight, values))


def comparing(a: Any, b: Any) -> int:
    """Return the cost of comparing two values: it ends with the shorter text."""
    if type(a) in _SEQUENCES and type(b) is type(a):
        return min(len(a), len(b)) // CHARACTERS_PER_STEP
    return 0


def searching(part: Any, whole: Any, *_: Any) -> int:
    """Return the cost of a search: in the worst text the part is compared at every place."""
    if type(part) is not str or type(whole) is not str:
        return walking(part, whole)
    steps = (len(part) + len(whole)) // CHARACTERS_PER_STEP
    places = len(whole) - len(part) + 1
    return steps + len(part) * places // COMPARISONS_PER_STEP if places > 0 else steps
