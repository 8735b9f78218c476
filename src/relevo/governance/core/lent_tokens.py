"""What a limit has lent to a host for one key: tokens that are used within a short time, or lost.

tokens = LentTokens()
tokens.take(1, now)  # False: borrow `tokens.wanted(1, now)` of them
tokens.lent(20, valid_until=now + 0.25)
tokens.take(1, now)  # True: the limit has charged for it already
"""

from __future__ import annotations

from typing import Final

AHEAD_MAX: Final = 100_000.0
"""The most tokens that a host borrows ahead of its callers."""


class LentTokens:
    """Tokens in hand; times are of one monotonic clock."""

    def __init__(self) -> None:
        self.left = 0.0
        self.valid_until = float("-inf")
        self._used = 0.0
        """What was used since the last loan; about as much is borrowed the next time."""

    def take(self, cost: float, now: float) -> bool:
        """Use tokens for a cost, if there are enough that are still valid."""
        if now >= self.valid_until or cost > self.left:
            return False
        self.left -= cost
        self._used += cost
        return True

    def wanted(self, cost: float) -> float:
        """Return how many tokens to borrow for callers whose costs add up to this."""
        return max(cost, min(cost + 2 * self._used, AHEAD_MAX))

    def lent(self, amount: float, valid_until: float, now: float) -> None:
        """Take in a loan; what is left of the last one is used no longer than before."""
        if now >= self.valid_until:
            self.left = 0.0
        if amount > 0:
            self.valid_until = min(valid_until, self.valid_until) if self.left else valid_until
            self.left += amount
        self._used = 0.0

    def is_over(self, now: float) -> bool:
        """Whether nothing here may be used any more."""
        return now >= self.valid_until
