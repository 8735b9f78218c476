"""A host's share of a pool: it serves its own callers from it, without asking the pool.

    chunk = Chunk(now=0.0)
    chunk.lent(8)  # the pool lent eight
    chunk.take(1)  # True: no message was sent
    chunk.release(1, now=3.0)
    chunk.returnable(now=4.5)  # what goes back to the pool

What has been idle for a second goes back, and all that is idle if others wait for it. `asks` says
how many more to borrow: as many as wait here, and the next time twice as many.
"""

from __future__ import annotations

from typing import Final

IDLE_SECONDS: Final = 1.0
AHEAD_MAX: Final = 256
"""The most permits that a host borrows ahead of its callers."""


class Chunk:
    """The permits that a pool lent to this host, divided among its callers."""

    def __init__(self, now: float = 0.0) -> None:
        self.size = 0
        """How much the pool lent."""
        self.in_use = 0
        self.recalled = False
        """Whether others wait for what is idle here."""
        self._ahead = 0
        self._low = 0
        """The least that was idle since `_since`: nobody needed it for so long."""
        self._since = now

    @property
    def idle(self) -> int:
        """How much can be taken at once."""
        return max(0, self.size - self.in_use)

    def take(self, weight: int) -> bool:
        """Serve a caller, if there is enough."""
        if weight > self.idle or self.recalled:
            return False
        self.in_use += weight
        self._low = min(self._low, self.idle)
        return True

    def release(self, weight: int, now: float) -> None:
        """A caller is done."""
        self.in_use = max(0, self.in_use - weight)
        self._look(now)

    def asks(self, waiting: int) -> int:
        """Return how much to borrow for so much that waits here."""
        lacking = waiting - self.idle
        if lacking <= 0:
            return 0
        self._ahead = min(AHEAD_MAX, max(1, self._ahead * 2))
        return lacking + (0 if self.recalled else self._ahead - 1)

    def lent(self, weight: int, now: float = 0.0) -> None:
        """The pool lent so much more."""
        self.size += weight
        self._low, self._since = self.idle, now

    def recall(self) -> None:
        """Others wait for permits: what is idle goes back, and nothing is borrowed ahead."""
        self.recalled, self._ahead = True, 0

    def returnable(self, now: float) -> int:
        """Take out what is to go back: all that is idle if recalled, else what was idle for 1 s."""
        if self.recalled:
            count, self.recalled = self.idle, False
        elif now - self._since >= IDLE_SECONDS:
            count = min(self._low, self.idle)
        else:
            return 0
        self.size -= count
        self._ahead = min(self._ahead, self.size)
        self._low, self._since = self.idle, now
        return count

    def lose(self) -> None:
        """The host's life has ended: nothing of it is ours any more."""
        self.size = self.in_use = self._low = self._ahead = 0

    def _look(self, now: float) -> None:
        if now - self._since >= 2 * IDLE_SECONDS:  # nobody looked; begin anew
            self._low, self._since = self.idle, now
