"""How far a lease has come: what was read, what was confirmed, what may be stored. Pure.

The position to store for a range is the highest below which everything is confirmed. Confirmations
may come late and in any order (9.2); one that is missing holds the position where it is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Delivery:
    """One batch that was given to the handler and is not wholly confirmed yet."""

    def __init__(self, range_id: int, start: int, end: int) -> None:
        self.range_id = range_id
        self.start = start
        self.end = end
        self.confirmed = start


class Progress:
    """Positions of one lease, by range."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.read = dict(positions)
        """Up to where changes were read, by range."""
        self.stored = dict(positions)
        """What the store has."""
        self._open: dict[int, deque[Delivery]] = {range_id: deque() for range_id in positions}

    @property
    def positions(self) -> dict[int, int]:
        """What may be stored."""
        return {
            range_id: self._open[range_id][0].confirmed if self._open[range_id] else read
            for range_id, read in self.read.items()
        }

    @property
    def unconfirmed(self) -> int:
        """Batches that were delivered and are not wholly confirmed."""
        return sum(map(len, self._open.values()))

    def deliver(self, range_id: int, end: int) -> Delivery:
        """Note that the changes up to `end` are given to the handler."""
        delivery = Delivery(range_id, self.read[range_id], end)
        self._open[range_id].append(delivery)
        self.read[range_id] = end
        return delivery

    def withdraw(self, delivery: Delivery) -> None:
        """The handler failed: read again from where the confirmed part of the batch ends."""
        self._open[delivery.range_id].remove(delivery)
        self.read[delivery.range_id] = delivery.confirmed

    def confirm(self, delivery: Delivery, upto: int | None = None) -> None:
        """Confirm a delivery, or a part of it; never takes a confirmation back."""
        delivery.confirmed = max(delivery.confirmed, delivery.end if upto is None else upto)
        waiting = self._open[delivery.range_id]
        while waiting and waiting[0].confirmed == waiting[0].end:
            waiting.popleft()

    def skip(self, range_id: int, position: int) -> None:
        """Nothing of this lease lies before `position`."""
        self.read[range_id] = max(self.read[range_id], position)
