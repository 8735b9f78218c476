"""The options of a processor, as decorators take them; `Processor` explains and checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from datetime import timedelta

    from relevo.feed.model import Mode
    from relevo.feed.processing.memory import MemoryLeases
    from relevo.feed.processing.pacing import CheckpointEvery
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
