"""Errors of pools, resolvers and what else governs scarce resources."""

from __future__ import annotations

from relevo.errors.conflicts import Conflict
from relevo.errors.requests import NotFound
from relevo.errors.system import Overloaded, Unavailable


class PoolExhausted(Overloaded):
    """As many callers wait for the pool or limit as may, or it had nothing free in time."""

    code = "pool_exhausted"


class UnassignedEntity(NotFound):
    """The resolver assigns entities explicitly, and this one has no partition."""

    code = "unassigned_entity"


class Moving(Unavailable):
    """The partition is being moved to another resource, for longer than the caller may wait."""

    code = "moving"


class StaleResolution(Conflict):
    """The partition has moved since it was resolved; resolve it again."""

    code = "stale_resolution"
    retryable = True
