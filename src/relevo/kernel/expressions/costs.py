"""What an evaluation may cost: its work is counted in steps, from one meter, before it is done.

A step is at most about a microsecond: one node, one item of a list, `CHARACTERS_PER_STEP` of a
text that is read or made, `COMPARISONS_PER_STEP` characters compared in a search. Nodes are counted
when a function is made, since none runs twice; a cost is what values add to that. The back end asks
for it wherever it looks into values (`to_python._charged`), so no function counts for itself.
"""

from __future__ import annotations

from typing import Any, Final

from relevo import limits
from relevo.errors import ExpressionFailed

Meter = list[int]
"""How many steps an evaluation has left, in its only element."""

CHARACTERS_PER_STEP: Final = 64
COMPARISONS_PER_STEP: Final = 1_024
TEXT_LENGTH_MAX: Final = limits.EXPRESSION_STEPS_MAX * CHARACTERS_PER_STEP
"""No text is longer: to make one would take all steps."""


def charge(meter: Meter, steps: int) -> None:
    """Take steps from what an evaluation has left."""
    meter[0] -= steps
    if meter[0] < 0:
        raise exhausted()


def exhausted() -> ExpressionFailed:
    """Return the error for work that is more than an evaluation may do."""
    return ExpressionFailed(
        "The expression takes too many steps for these values; give it shorter lists and texts."
    )


def weight(value: Any) -> int:
    """Return how many steps it takes to walk over a value, and over the texts in a list."""
    if type(value) is str:
        return len(value) // CHARACTERS_PER_STEP
    if type(value) is list:
        return len(value) + sum(
            len(one) // CHARACTERS_PER_STEP for one in value if type(one) is str
        )
    return 0


def walking(*values: Any) -> int:
    """The cost of looking at all of some values."""
    steps = 0
    for value in values:
        if type(value) is str:
            steps += len(value) // CHARACTERS_PER_STEP
        elif type(value) is list:
            steps += weight(value)
    return steps


def comparing(a: Any, b: Any) -> int:
    """The cost of comparing two values: it ends with the shorter text."""
    if type(a) is str and type(b) is str:
        return min(len(a), len(b)) // CHARACTERS_PER_STEP
    return 0


def searching(part: Any, whole: Any, *_: Any) -> int:
    """The cost of looking for a part: in the worst text it is compared at every place."""
    if type(part) is not str or type(whole) is not str:
        return walking(part, whole)
    steps = (len(part) + len(whole)) // CHARACTERS_PER_STEP
    places = len(whole) - len(part) + 1
    return steps + len(part) * places // COMPARISONS_PER_STEP if places > 0 else steps
