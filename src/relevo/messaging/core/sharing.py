"""Turns between classes, tiers or sources: a floor share for the lower ones, or shares by weight.

Both keep a few numbers, which change only where a claim had a choice. So claims of a queue that
holds messages of a single class write none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

K = TypeVar("K", int, str)

COST: Final = 232_792_560
"""What one message counts in a share: a number that every weight up to 20 divides, so that virtual
times are whole numbers, and the same wherever they are added up."""


def patience(floor_share: float) -> int | None:
    """Return how many claims in a row may pass over work that waits; None for any number."""
    return math.ceil(1 / floor_share) - 1 if floor_share > 0 else None


def floor_turn(
    order: Sequence[K], passed: Mapping[K, int], most: int | None
) -> tuple[K, Mapping[K, int]]:
    """Return which key has its turn: the first, unless another was passed over `most` times.

    `order` has the keys with work that can be taken now. `passed` counts, by key, the claims in a
    row that passed it over. Also returns the new counts.
    """
    if most is None or len(order) == 1:
        return order[0], passed
    due = [key for key in order[1:] if passed.get(key, 0) >= most]
    turn = max(due, key=lambda key: passed[key]) if due else order[0]
    later = {key: 0 if key == turn else passed.get(key, 0) + 1 for key in order[1:]}
    return turn, {**passed, **later}


def share_turn(
    order: Sequence[K], weights: Mapping[K, int], vtimes: Mapping[K, int]
) -> tuple[K, Mapping[K, int]]:
    """Return which key is served next so that each gets its share, and the new virtual times.

    A key's virtual time advances by `COST / weight` with each message. `order` has the keys with
    work that can be taken now; the least virtual time is next, the first key in a tie. The other
    keys are carried along, so that idle time is not saved up.
    """
    if len(order) == 1:
        return order[0], vtimes
    start = min((vtimes[key] for key in order if key in vtimes), default=0)
    times = {key: vtimes.get(key, start) for key in weights}
    turn = min(order, key=lambda key: times[key])
    times[turn] += COST // weights[turn]
    least = min(times[key] for key in order)
    return turn, {key: time if key in order else max(time, least) for key, time in times.items()}
