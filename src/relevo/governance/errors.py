"""Errors of governed resources."""

from __future__ import annotations

from relevo.errors import CallerError, Conflict, NotFound, Overloaded, Unavailable


class PoolExhausted(Overloaded):
    """As many callers wait for the pool or limit as may; try again later."""

    code = "pool_exhausted"


class Unassigned(NotFound):
    """The entity has no partition, and the resolver assigns none by itself."""

    code = "unassigned"


class Moving(Unavailable):
    """The partition is being moved, and the move took longer than a caller waits."""

    code = "moving"


class StaleResolution(Conflict):
    """The resolution is older than the partition's last move; resolve again."""

    code = "stale_resolution"
    retryable = True


class StaleSink(Conflict):
    """A younger owner has written to the sink; nothing was written."""

    code = "stale_sink"


class BreakerOpen(Unavailable):
    """The resource failed too often; calls are refused until it had time to recover."""

    code = "breaker_open"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Rejected(CallerError):
    """A sink refuses some events for good; `indexes` says which of the batch, or None: unknown.

    Nothing of the batch was written.
    """

    code = "rejected"

    def __init__(self, message: str, *, indexes: tuple[int, ...] | None = None) -> None:
        super().__init__(message)
        self.indexes = indexes
