"""How long to wait before trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from random import Random


class Backoff(Struct, frozen=True, kw_only=True):
    """Doubling waits with full jitter: somewhere between nothing and `first · factor^n`, capped.

    Full jitter, because callers that failed together must not come back together.
    """

    first: float = 0.05
    factor: float = 2.0
    longest: float = 5.0

    def delay(self, attempt: int, random: Random) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 0)."""
        ceiling = min(self.longest, self.first * self.factor ** min(attempt, 64))
        return ceiling * random.random()
