"""How fast one key may send: a token bucket for each, in the memory of each host."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from relevo.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import Callable

_BUCKETS_SWEPT_AT: Final = 1_000


class Throttle:
    """Lets `rate` requests per second of a key through, and up to `burst` at once after a pause."""

    def __init__(
        self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """When each bucket will be full again: the whole state of a bucket in one number."""

    def take(self, key_id: str) -> None:
        """Return if the key may send now, else raise `RateLimited` with the time to wait."""
        now = self._clock()
        full_at = max(self._full_at.get(key_id, now), now) + 1.0 / self._rate
        wait = full_at - now - self._burst / self._rate
        if wait > 1e-9:
            raise RateLimited(
                f"this key sends more than {self._rate:g} requests per second; wait {wait:.3f} s",
                retry_after=wait,
            )
        if key_id not in self._full_at and len(self._full_at) >= _BUCKETS_SWEPT_AT:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
        self._full_at[key_id] = full_at
