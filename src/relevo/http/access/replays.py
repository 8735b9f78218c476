"""Replay protection: a host remembers signed requests while their signatures are valid.

The official client signs a date in whole seconds and nothing random, so two honest requests may be
equal; equal ones within a second of the first are taken for that. Reads are not kept: to repeat one
changes nothing.

Each host remembers the requests that it received since its start. When there are too many, it
forgets the oldest dates, and then refuses requests dated that far back rather than risk a replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.errors import Unauthenticated

if TYPE_CHECKING:
    from datetime import datetime

REPEAT_SECONDS: Final = 1.0
"""The resolution of the dates that are signed."""
READS: Final = frozenset({"GET", "HEAD"})


class Replays:
    """The signatures that were accepted, by the second of their date."""

    def __init__(self, skew_seconds: float, most: int = limits.SIGNATURES_REMEMBERED_MAX) -> None:
        self._skew_seconds = skew_seconds
        self._most = most
        self._seen: dict[int, dict[bytes, float]] = {}
        self._count = 0
        self._forgotten = -1
        """The last second whose signatures were forgotten before they lost their validity."""
        self._swept = 0

    def check(self, signature: bytes, date: datetime, now: datetime) -> None:
        """Remember a signature; raises `Unauthenticated` if it was there before."""
        second, at = int(date.timestamp()), now.timestamp()
        self._sweep(int(at - self._skew_seconds) - 1)
        if second <= self._forgotten:
            raise Unauthenticated(
                "the signed date is so old that this host no longer knows whether it has seen this"
                " request; sign it again, and set the clock if that is no help"
            )
        seen = self._seen.setdefault(second, {})
        first = seen.get(signature)
        if first is None:
            seen[signature] = at
            self._count += 1
            self._make_room()
        elif at - first > REPEAT_SECONDS:
            raise Unauthenticated(
                f"this signed request came {at - first:.0f} s ago already; sign each request anew"
            )

    def _sweep(self, expired: int) -> None:
        """Forget expired signatures, once per second."""
        if expired > self._swept:
            self._swept = expired
            for second in [one for one in self._seen if one <= expired]:
                self._count -= len(self._seen.pop(second))

    def _make_room(self) -> None:
        while self._count > self._most and len(self._seen) > 1:
            oldest = min(self._seen)
            self._count -= len(self._seen.pop(oldest))
            self._forgotten = max(self._forgotten, oldest)
