"""How a processor paces its work: how much at once, in how many lanes, stored how often. Pure."""

from __future__ import annotations

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue

UNSTORED_BATCHES = 10
"""How many batches a checkpoint is assumed to cover if only seconds are given."""


class CheckpointEvery(Struct, frozen=True, kw_only=True):
    """How often automatic checkpoints are stored: whichever bound is reached first.

    Fewer writes, and more that is delivered again after a crash. A hand-off, a stop, a pause and a
    failure store all finished changes first.

    >>> CheckpointEvery(batches=10, seconds=1.0)
    CheckpointEvery(batches=10, seconds=1.0)
    """

    batches: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.batches is None and self.seconds is None:
            raise InvalidValue("CheckpointEvery needs batches, seconds, or both")
        if self.batches is not None and self.batches < 1:
            raise InvalidValue(f"CheckpointEvery: batches is at least 1, not {self.batches}")
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidValue(f"CheckpointEvery: seconds must be above 0, not {self.seconds}")


class Pace(Struct, frozen=True, kw_only=True):
    """How a lease is worked on; each host decides for itself."""

    max_items: int = limits.FEED_ITEMS_DEFAULT
    max_bytes: int = limits.FEED_BYTES_MAX
    prefetch: int = 1
    """Batches that are read ahead while the handler runs."""
    lanes: int = 1
    lane_window: int = limits.FEED_LANE_WINDOW
    """Changes that may be in flight, where there is more than one lane."""
    atomic_groups: bool = False
    every: CheckpointEvery | None = None

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("max_items", self.max_items, 1, limits.FEED_ITEMS_MAX),
            ("prefetch", self.prefetch, 0, limits.FEED_PREFETCH_MAX),
            ("lanes", self.lanes, 1, limits.FEED_LANES_MAX),
            ("lane_window", self.lane_window, 1, limits.FEED_ITEMS_MAX),
        ):
            if not low <= value <= high:
                raise InvalidValue(f"{name} is {low} to {high}, not {value}")

    @property
    def in_flight_max(self) -> int:
        """How many changes behind the stored position a crash may have been at."""
        found = self.max_items
        if self.lanes > 1:
            found = max(found, self.lane_window)
        if self.every is not None:
            found = max(found, self.max_items * (self.every.batches or UNSTORED_BATCHES))
        return min(found, limits.FEED_ITEMS_MAX)

    @property
    def in_order(self) -> bool:
        """Whether a crash is always at the first batch behind the stored position."""
        return self.lanes == 1 and self.every is None
