"""Estimates the wait in a queue from how fast it has been moving.

past = Past(ages=[0.5, 2, 3, 9, 30, 41], watched=60)
minutes(3, past.rate, slots=4)
"""

from __future__ import annotations

from math import ceil, log
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW_MINUTES: Final = 60.0
HALF_LIFE_MINUTES: Final = 15.0
ENOUGH: Final = 5
"""Departures that make a rate."""
HANDLING_MINUTES: Final = 5.0
"""The handling time assumed while no job has been measured."""


class Past(Struct, frozen=True):
    """When jobs of a queue went to workers, and how long that was counted."""

    ages: tuple[float, ...]
    """Minutes ago, of each departure; those before the window do not count."""
    watched: float = WINDOW_MINUTES
    """Minutes that `ages` cover: less than the window for a young queue, or a cut list."""

    @property
    def rate(self) -> float | None:
        """Departures per minute, recent ones weighing more; None if too few are known.

        A departure weighs half as much for each half-life of its age, and so does the time in which
        there was none; the rate is the one weight over the other.
        """
        counted = [age for age in self.ages if age <= WINDOW_MINUTES]
        if len(counted) < ENOUGH:
            return None
        longest = max(self.watched, *counted, 1.0)
        time = HALF_LIFE_MINUTES / log(2) * (1 - _weight(min(longest, WINDOW_MINUTES)))
        return sum(_weight(age) for age in counted) / time


def minutes(
    position: int, rate: float | None, *, slots: int = 0, handling: float = HANDLING_MINUTES
) -> int:
    """Return the whole minutes that the job at a position waits, rounded up; 1 is next.

    Without a rate the `slots` of the active workers of the queue, free and busy ones, and the mean
    handling time in minutes serve; without workers, a default for each job. Never less for a
    higher position.
    """
    if rate:
        return ceil(position / rate)
    if slots > 0:
        return ceil(position * handling / slots)
    return ceil(position * HANDLING_MINUTES)


def by_priority(
    last_positions: Mapping[int, int],
    rate: float | None,
    *,
    slots: int = 0,
    handling: float = HANDLING_MINUTES,
) -> dict[str, int]:
    """Return the minutes for each priority present, as text, by the position of its last job."""
    return {
        str(priority): minutes(position, rate, slots=slots, handling=handling)
        for priority, position in last_positions.items()
    }


def _weight(age: float) -> float:
    return float(0.5 ** (age / HALF_LIFE_MINUTES))
