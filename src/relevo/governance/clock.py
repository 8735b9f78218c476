"""The store's time without a question to the store at every call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

READ_SECONDS: Final = 5.0
"""How long a reading is counted on from."""


class StoreClock:
    """Seconds of the store's clock: read now and then, and counted on in between.

    It never runs backwards, and is behind the store by no more than a round trip.
    """

    def __init__(self, read: Callable[[], Awaitable[datetime]]) -> None:
        self._read = read
        self._read_at = float("-inf")
        self._ahead = 0.0
        """What the store's clock is ahead of the monotonic one."""

    async def now(self) -> float:
        """Return the time in seconds since 1970."""
        if time.monotonic() - self._read_at >= READ_SECONDS:
            self.note(await self._read())
        return time.monotonic() + self._ahead

    def note(self, now: datetime) -> None:
        """Take in a reading that has just come."""
        self._read_at = time.monotonic()
        self._ahead = max(self._ahead, now.timestamp() - self._read_at)
