"""How long to wait before trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from random import Random


class Backoff(Struct, frozen=True, kw_only=True):
    """Doubling waits: `first · factor^n` seconds, at most `longest`, times a random factor.

    `jitter` is the range of that factor. By default it is full, from 0 to 1: callers that failed
    together must not come back together. `(0.8, 1.2)` is a fifth more or less, `(1, 1)` none.
    """

    first: float = 0.05
    factor: float = 2.0
    longest: float = 5.0
    jitter: tuple[float, float] = (0.0, 1.0)

    def delay(self, attempt: int, random: Random) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 0)."""
        usual = min(self.longest, self.first * self.factor ** min(attempt, 64))
        return usual * random.uniform(*self.jitter)
