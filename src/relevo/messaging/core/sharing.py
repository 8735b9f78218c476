"""Turns between those who compete: a floor share below the first, and shares by weight.

Both keep a few numbers, which move only where there was a choice. So a queue that holds messages of
a single class never writes them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

K = TypeVar("K", int, str)

COST: Final = 1.0
"""What one message counts in a share."""


def patience(floor_share: float) -> int | None:
    """Return how many claims in a row may pass over work that waits; None for any number."""
    return math.ceil(1 / floor_share) - 1 if floor_share > 0 else None


def floor_turn(
    order: Sequence[K], passed: Mapping[K, int], most: int | None
) -> tuple[K, Mapping[K, int]]:
    """Return whose turn it is of those that have work, the first before the others.

    `passed` says how often in a row each of the others was passed over; who was so `most` times is
    served now. Also returns the new counts.
    """
    if most is None or len(order) == 1:
        return order[0], passed
    due = [key for key in order[1:] if passed.get(key, 0) >= most]
    turn = max(due, key=lambda key: passed[key]) if due else order[0]
    later = {key: 0 if key == turn else passed.get(key, 0) + 1 for key in order[1:]}
    return turn, {**passed, **later}


def share_turn(
    weights: Mapping[K, int],
    waiting: Collection[K],
    allowed: Sequence[K],
    vtimes: Mapping[K, float],
) -> tuple[K, Mapping[K, float]]:
    """Return who is served next so that each gets its share by weight, and the new virtual times.

    Everyone has a virtual time, which advances by 1 / weight with each message; the least of
    `allowed` is next, the first in a tie. `waiting` are all that have work, also those whose work
    may not be taken now. Who has none is carried along, so that idle time is not saved up.
    """
    if len(waiting) == 1:
        return allowed[0], vtimes
    start = min((vtimes[key] for key in waiting if key in vtimes), default=0.0)
    times = {key: vtimes.get(key, start) for key in weights}
    turn = min(allowed, key=lambda key: times[key])
    times[turn] += COST / weights[turn]
    least = min(times[key] for key in waiting)
    idle = [key for key in weights if key not in waiting]
    return turn, times | {key: max(times[key], least) for key in idle}
