"""The options of a processor: as decorators take them, and with their defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, TypedDict

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue
from relevo.feed.model import Mode
from relevo.feed.processing.memory_leases import MemoryLeases
from relevo.feed.processing.pacing import CheckpointEvery, Pace
from relevo.feed.reading.bounds import Until
from relevo.feed.reading.filters import Given
from relevo.feed.reading.start import Start
from relevo.kernel.backoff import Backoff
from relevo.kernel.leases.model import Strategy


class EventProcessorOptions(TypedDict, total=False):
    """Options of a processor of events."""

    start: Start
    max_items: int
    max_bytes: int
    poll_interval: float
    checkpoint: Literal["auto", "manual"]
    max_unconfirmed: int
    checkpoint_every: CheckpointEvery | None
    prefetch: int
    lanes: int
    lane_window: int
    atomic_groups: bool
    until: Until | None
    raw: bool
    follow_splits: bool
    leases_in: str | MemoryLeases
    filter: Given | None
    hold: timedelta | int | None
    on_start_mismatch: Literal["warn", "ignore", "error"]
    backoff: Backoff | None
    max_attempts: int | None
    dead_letter: bool
    on_poison: Literal["skip", "block_key", "halt"]
    stall_after: float | None
    delegate_timeout: float | None
    handoff_timeout: float
    strategy: Strategy
    weight: float
    min_leases: int
    max_leases: int | None


class ProcessorOptions(EventProcessorOptions, total=False):
    """Options of a processor of changes."""

    mode: Mode
    leases: int | None
    model: Any


class ProcessorSettings(Struct, frozen=True, kw_only=True):
    """The same options with their defaults."""

    start: Start = "now"
    """Where a new unit begins; a unit that exists goes on from its checkpoint."""
    mode: Mode = "latest"
    max_items: int = limits.FEED_ITEMS_DEFAULT
    max_bytes: int = limits.FEED_BYTES_MAX
    poll_interval: float = 1.0
    """Seconds between two looks for changes while no wake-up comes."""
    checkpoint: Literal["auto", "manual"] = "auto"
    """Whether a return of the handler confirms its changes, or only `ctx.confirm()`."""
    max_unconfirmed: int = 10
    """Calls with manual confirmation that may be open at once."""
    checkpoint_every: CheckpointEvery | None = None
    prefetch: int = 1
    """Batches that are read ahead while the handler runs."""
    lanes: int = 1
    """Calls that run side by side per lease; changes of one key stay in order."""
    lane_window: int = limits.FEED_LANE_WINDOW
    """Changes that may be in flight if there is more than one lane."""
    atomic_groups: bool = False
    """Whether changes of one write stay together in one call."""
    until: Until | None = None
    """Where a bounded run ends; None runs for ever."""
    raw: bool = False
    """Whether the handler gets JSON instead of `Change` objects."""
    leases: int | None = None
    """Number of leases; None is one per range."""
    follow_splits: bool = True
    leases_in: str | MemoryLeases = "leases"
    filter: Given | None = None
    hold: timedelta | int | None = None
    """How long versions are kept for this unit while it lags behind."""
    on_start_mismatch: Literal["warn", "ignore", "error"] = "warn"
    backoff: Backoff | None = None
    """Waits between attempts; None is 1 second, doubling up to 60 seconds."""
    max_attempts: int | None = None
    """Failures of a single change before it becomes a dead letter."""
    dead_letter: bool = False
    on_poison: Literal["skip", "block_key", "halt"] = "skip"
    """What follows a dead letter: go on, hold back its key, or stop the lease."""
    stall_after: float | None = 300.0
    """Seconds after which a call counts as stalled; None never does."""
    delegate_timeout: float | None = None
    """Seconds after which a call is canceled; None is no limit."""
    handoff_timeout: float = 30.0
    strategy: Strategy = "equal"
    weight: float = 1.0
    min_leases: int = 0
    max_leases: int | None = None
    model: Any = Any

    def __post_init__(self) -> None:
        if self.checkpoint_every is not None and self.checkpoint != "auto":
            raise InvalidValue("checkpoint_every needs checkpoint='auto', not 'manual'")
        for option in ("poll_interval", "stall_after", "delegate_timeout"):
            seconds = getattr(self, option)
            if seconds is not None and not seconds > 0:
                raise InvalidValue(f"{option} must be above 0, not {seconds}")

    def pace(self) -> Pace:
        """Return how a lease is worked on."""
        return Pace(
            max_items=self.max_items, max_bytes=self.max_bytes, prefetch=self.prefetch,
            lanes=self.lanes, lane_window=self.lane_window, atomic_groups=self.atomic_groups,
            every=self.checkpoint_every,
        )  # fmt: skip
