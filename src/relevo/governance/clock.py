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
        self.uncertainty = 0.0
        """Seconds that the store may be ahead of what `now` says."""
        self._ahead = 0.0
        """What the store's clock is ahead of the monotonic one."""

    async def now(self) -> float:
        """Return the time in seconds since 1970."""
        sent = time.monotonic()
        if sent - self._read_at >= READ_SECONDS:
            found = (await self._read()).timestamp()
            self._read_at = time.monotonic()
            self._ahead = max(self._ahead, found - self._read_at)
            self.uncertainty = self._read_at - sent
        return time.monotonic() + self._ahead
