"""Ids of events that were written lately."""

from __future__ import annotations

from collections import deque
from typing import Final

IDS_MAX: Final = 1_000_000


class WrittenIds:
    """Ids with the number under which their event was written, for so many seconds."""

    def __init__(self, seconds: float, *, ids_max: int = IDS_MAX) -> None:
        self._seconds = seconds
        self._ids_max = ids_max
        self._numbers: dict[str, int] = {}
        self._order: deque[tuple[float, str, int]] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def number_of(self, id_: str, now: float) -> int | None:
        """Return the number of an id that was written within the window."""
        self._forget(now)
        return self._numbers.get(id_)

    def add(self, id_: str, number: int, now: float) -> None:
        """Remember that an id was written."""
        self._forget(now)
        self._numbers[id_] = number
        self._order.append((now, id_, number))

    def _forget(self, now: float) -> None:
        order = self._order
        while order and (order[0][0] <= now - self._seconds or len(order) > self._ids_max):
            _, id_, number = order.popleft()
            if self._numbers.get(id_) == number:
                del self._numbers[id_]
