"""Errors of governed resources."""

from __future__ import annotations

from relevo.errors import (
    CallerError,
    Conflict,
    Moving,
    PoolExhausted,
    StaleResolution,
    UnassignedEntity,
    Unavailable,
)

__all__ = [
    "BreakerOpen",
    "LoadFailed",
    "Moving",
    "PermitLost",
    "PoolExhausted",
    "Rejected",
    "StaleResolution",
    "StaleSink",
    "UnassignedEntity",
]


class PermitLost(Conflict):
    """The permit has ended before its body: this host was past its deadline, or could not renew.

    The body was canceled.
    """

    code = "permit_lost"


class StaleSink(Conflict):
    """A younger owner has written to the sink; nothing was written."""

    code = "stale_sink"


class BreakerOpen(Unavailable):
    """The resource failed too often; calls are refused until it had time to recover."""

    code = "breaker_open"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoadFailed(Unavailable):
    """The back end of a cache failed, and there is no result that may still be served."""

    code = "load_failed"

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
