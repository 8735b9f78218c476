"""The used capacity of a worker, and whether another job fits.

PIZZA = ChannelTerms(cost=50)
obstacle(capacity=100, used=83, terms=PIZZA, jobs=1)   # "capacity"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Obstacle = Literal["channel", "capacity", "channelLimit", "offerLimit"]
"""Why no further job fits: channel not served, too little left, too many of the kind, of offers."""


class ChannelTerms(NamedTuple):
    """The cost of a job on a channel, and the worker's limit of such jobs."""

    cost: int
    max_jobs: int | None = None


def obstacle(*, capacity: int, used: int, terms: ChannelTerms | None, jobs: int) -> Obstacle | None:
    """Return why another job of a channel does not fit, or None if it does.

    `terms` is None when the worker does not serve the channel. `used` and `jobs` count open offers
    and assignments not yet closed alike. More may be used than there is capacity, while a lowered
    limit drains; then nothing fits, not even what costs nothing.
    """
    if terms is None:
        return "channel"
    if used + terms.cost > capacity:
        return "capacity"
    if terms.max_jobs is not None and jobs >= terms.max_jobs:
        return "channelLimit"
    return None


def load_ratio(used: int, capacity: int) -> float:
    """Return the share of its capacity that a worker has given; above 1 while a limit drains."""
    return used / max(capacity, 1)


def slots(capacity: int, channels: Mapping[str, ChannelTerms]) -> int:
    """Return how many jobs at most a worker can have at once, free slots and busy ones.

    A channel that costs nothing and has no limit counts as one slot: estimates need a number.
    """
    return max((_slots(capacity, terms) for terms in channels.values()), default=0)


def _slots(capacity: int, terms: ChannelTerms) -> int:
    if terms.cost > 0:
        fit = capacity // terms.cost
        return fit if terms.max_jobs is None else min(fit, terms.max_jobs)
    return 1 if terms.max_jobs is None else terms.max_jobs
