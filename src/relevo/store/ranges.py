"""Feed ranges: contiguous intervals of the hash space, each with its own ordered log. Pure.

A container starts with ranges of equal width. A split seals a range and puts two children in its
place. No item is moved: the log of a child is its ancestors' log in its interval, then its own.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.store.keys import SPACE_MAX, SPACE_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASH_TOP = 0x40
"""The first byte of every hash is below this, so intervals are cut between 00 and 40."""


class Interval(Struct, frozen=True, order=True):
    """Hashes from `low` inclusive to `high` exclusive, compared as text."""

    low: str = SPACE_MIN
    high: str = SPACE_MAX

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InvalidValue(f"an interval needs low < high, not {self.low!r} and {self.high!r}")

    def __contains__(self, epk: str) -> bool:
        return self.low <= epk < self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether both hold some hash."""
        return self.low < other.high and other.low < self.high

    def intersect(self, other: Interval) -> Interval:
        """Return the hashes that are in both; they must overlap."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def split(self, parts: int = 2) -> tuple[Interval, ...]:
        """Cut into `parts` intervals of about equal width."""
        if parts < 1:
            raise InvalidValue(f"an interval is cut into at least 1 part, not {parts}")
        low, high = _number(self.low), _number(self.high)
        if high - low < parts:
            raise InvalidValue(f"the interval {self} is too narrow for {parts} parts")
        cuts = [_text(low + (high - low) * i // parts) for i in range(1, parts)]
        return tuple(
            Interval(a, b) for a, b in zip([self.low, *cuts], [*cuts, self.high], strict=True)
        )

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


def under(prefix: str) -> Interval:
    """Return the interval of the hashes of all keys that begin with these parts.

    All keys of a container have hashes of one length, so the interval of a complete key holds only
    its own hash.
    """
    return Interval(prefix, prefix + SPACE_MAX)


WHOLE = Interval()
_DIGITS = 16
"""Hex digits that count when an interval is cut; more would not make the parts more equal."""


def _number(epk: str) -> int:
    top = HASH_TOP << 4 * (_DIGITS - 2)
    return min(top, int(epk[:_DIGITS].ljust(_DIGITS, "0"), 16)) if epk else 0


def _text(number: int) -> str:
    text = f"{number:0{_DIGITS}X}".rstrip("0")
    return text + "0" * (len(text) % 2)


class Range(Struct, frozen=True, kw_only=True):
    """One range of a container."""

    id: int
    interval: Interval
    parents: tuple[int, ...] = ()
    sealed_lsn: int | None = None

    @property
    def open(self) -> bool:
        """Whether it still takes writes."""
        return self.sealed_lsn is None


class RangeMap:
    """All ranges of a container, sealed ones too, as one read showed them."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.by_id = {range_.id: range_ for range_ in ranges}
        self.open: Sequence[Range] = sorted(
            (one for one in self.by_id.values() if one.open), key=lambda one: one.interval
        )
        self._lows = [one.interval.low for one in self.open]

    def at(self, epk: str) -> Range:
        """Return the open range that takes writes of this hash."""
        return self.open[bisect_right(self._lows, epk) - 1]

    def over(self, interval: Interval) -> list[Range]:
        """Return the open ranges that an interval touches, in order."""
        return [one for one in self.open if one.interval.overlaps(interval)]

    def lineage(self, range_id: int) -> list[int]:
        """Return the ids whose rows make up a range's log: itself and all its ancestors."""
        found, waiting = [], [range_id]
        while waiting:
            one = waiting.pop()
            if one in self.by_id and one not in found:
                found.append(one)
                waiting.extend(self.by_id[one].parents)
        return found

    def children(self, range_id: int) -> list[Range]:
        """Return the open ranges that descend from a sealed one."""
        return [one for one in self.open if range_id in self.lineage(one.id)]


def initial(count: int) -> tuple[Interval, ...]:
    """Return the intervals that a new container starts with.

    >>> [str(one) for one in initial(4)]
    ['-10', '10-20', '20-30', '30-FF']
    """
    return WHOLE.split(count)
