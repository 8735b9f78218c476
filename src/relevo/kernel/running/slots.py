"""How much a lane may hold on a host: its slots, and a little more while handlers are quick.

With only as many claims as slots, a host of quick handlers spends its time waiting for the
database. So a lane that finds itself idle between two statements claims ahead, twice as much each
time; as soon as what it claimed has to wait, it goes back. Half of it runs while a statement
settles the other half and claims as many.
"""

from __future__ import annotations

from typing import Final

from relevo.limits import MIB

AHEAD_MAX: Final = 2_000
"""Claims that a lane holds at most, whatever its handlers."""
AHEAD_BYTES_MAX: Final = 16 * MIB
"""What the data of claims ahead takes in memory, about."""
WAIT_SECONDS: Final = 0.25
"""What waits longer than this on a host was claimed too early."""


class Appetite:
    """The number of jobs that a lane should have in hand."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._ahead_max = max(slots, AHEAD_MAX)
        self._hold(slots)

    def hungry(self) -> None:
        """Everything in hand was finished before the next statement brought more."""
        self._hold(min(max(self.most * 2, self.slots), self._ahead_max))

    def weigh(self, jobs: int, size: int) -> None:
        """So many jobs came with so much data: of large ones fewer are held."""
        fit = AHEAD_BYTES_MAX * jobs // max(1, size)
        self._ahead_max = max(self.slots, min(AHEAD_MAX, fit))
        self._hold(min(self.most, self._ahead_max))

    def full(self) -> None:
        """Something had to wait for a slot for too long."""
        self._hold(self.slots)

    def _hold(self, most: int) -> None:
        self.most = most
        self.step = max(1, most // 2)
        """How many to settle and claim with one statement."""

    def room(self, held: int) -> int:
        """How many more to claim; in few statements, so not for the sake of one or two."""
        room = min(self.most - held, max(self.step, self.slots - held))
        return room if room >= self.step or held < self.slots else 0
