"""The load of leases, and which hosts carry too much. Pure: instants are passed in."""

from __future__ import annotations

from math import floor, fsum
from typing import TYPE_CHECKING

from relevo.kernel.leases.model import IDLE, Load, PlannedLease, UnitMember

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

WINDOW_SECONDS = 10.0
FACTOR = 0.5
"""The weight of the last window; earlier windows have the rest."""
FORGOTTEN = 64
"""So many windows ago is as good as never."""
TICKS = 3
"""A unit that is uneven for so many ticks in a row is evened."""
GAP = 0.2
"""Hosts whose use differs by no more are even."""
EXCESS = 1.15
"""A host is used too much only above so many times the mean."""
SHARE = 0.6
"""The share of the load above the mean that moves at once; all would overshoot."""
GAIN = GAP / 2
"""A lease too large for that share moves if it lowers the use of the most used host so much."""
REST_SECONDS = 60.0
"""A lease with load that has moved stays so long."""
WORTH = 0.05
"""A lease that is less busy does not move for its load. One that does is remembered to be busy for
as long as it must rest, however idle it is by then: six windows leave of this what still counts."""


class Meter:
    """Measures one lease in windows of 10 s that begin at the same instants for every lease.

    With several calls at a time a lease is busy while at least one runs.
    """

    def __init__(self, load: Load, now: float) -> None:
        self._load = load
        self._window = floor(now / WINDOW_SECONDS)
        self._at = now
        self._running = 0
        self._busy = 0.0
        self._changes = 0
        self._bytes = 0

    def begin(self, now: float) -> None:
        """A call begins."""
        self._advance(now)
        self._running += 1

    def end(self, now: float, *, changes: int = 0, size: int = 0) -> None:
        """A call ends, with so many changes of so many bytes."""
        self._advance(now)
        self._running -= 1
        self._changes += changes
        self._bytes += size

    @property
    def running(self) -> bool:
        """Whether a call runs at present."""
        return self._running > 0

    def read(self, now: float) -> Load:
        """Return the load up to the last window that is over; it stays the same until the next."""
        self._advance(now)
        return self._load

    def _advance(self, now: float) -> None:
        window = floor(now / WINDOW_SECONDS)
        while self._window < window:
            ends = (self._window + 1) * WINDOW_SECONDS
            self._run_until(ends)
            self._close()
            if window - self._window > FORGOTTEN:
                self._window = window - FORGOTTEN
                self._at = self._window * WINDOW_SECONDS
        self._run_until(now)

    def _run_until(self, now: float) -> None:
        if self._running and now > self._at:
            self._busy += now - self._at
        self._at = max(self._at, now)

    def _close(self) -> None:
        last = Load(
            min(1.0, self._busy / WINDOW_SECONDS),
            self._changes / WINDOW_SECONDS,
            self._bytes / WINDOW_SECONDS,
        )
        self._load = smooth(self._load, last)
        self._window += 1
        self._busy, self._changes, self._bytes = 0.0, 0, 0


def smooth(before: Load, last: Load) -> Load:
    """Return the load after another window; a negligible load becomes 0."""
    found = Load(
        *(
            round((1 - FACTOR) * old + FACTOR * new, digits)
            for old, new, digits in (
                (before.busy, last.busy, 4),
                (before.changes_s, last.changes_s, 3),
                (before.bytes_s, last.bytes_s, 0),
            )
        )
    )
    gone = found.busy < 0.0005 and last == IDLE
    return IDLE if gone else found


class Streak:
    """How many ticks in a row a unit was uneven; a host that is woken often does not count more."""

    def __init__(self) -> None:
        self.ticks = 0
        self._counted_at = float("-inf")

    def note(self, uneven: bool, now: float, interval: float) -> int:
        """Count one tick, at most one in `interval` seconds; return how many it makes."""
        if not uneven:
            self.ticks = 0
        elif now - self._counted_at >= interval:
            self.ticks += 1
            self._counted_at = now
        return self.ticks

    def reset(self) -> None:
        """Restart the count after a move: the next three ticks show whether it was enough."""
        self.ticks = 0


def use(members: Iterable[UnitMember], loads: Mapping[UUID, Sequence[float]]) -> dict[UUID, float]:
    """Return U(i) of every host that takes part; `loads` are those of the leases it will have."""
    # fsum, since a plan must not depend on the order of rows.
    return {
        m.host: fsum(loads.get(m.host, ())) / m.weight for m in members if m.live and not m.draining
    }


def is_uneven(used: Mapping[UUID, float]) -> bool:
    """Whether one host carries too much and another could carry more."""
    if len(used) < 2:
        return False
    most, least = max(used.values()), min(used.values())
    return most > EXCESS * _mean(used) and most - least > GAP


def is_loaded(members: Iterable[UnitMember], leases: Iterable[PlannedLease]) -> bool:
    """Whether the load could be uneven at all; below that, counts decide as in equal units."""
    weights = [m.weight for m in members if m.live and not m.draining]
    busy = fsum(x.load for x in leases if x.state == "active")
    return bool(weights) and busy / min(weights) > GAP


def relieve(
    me: UnitMember,
    donor: UnitMember,
    used: Mapping[UUID, float],
    ready: Iterable[PlannedLease],
    most: int,
) -> list[str]:
    """Return up to `most` leases of the most used host that the least used one asks for.

    Where each is too large for what may move at once, as two hot ones are, it is the one lease that
    evens the two hosts best.
    """
    worth = [
        x for x in sorted(ready, key=lambda x: (-x.load, x.name))
        if x.load >= WORTH and (x.moved_ago is None or x.moved_ago >= REST_SECONDS)
    ]  # fmt: skip
    budget = SHARE * (used[donor.host] - _mean(used)) * min(me.weight, donor.weight)
    chosen: list[PlannedLease] = []
    for lease in worth:
        if len(chosen) < most and fsum(x.load for x in (*chosen, lease)) <= budget:
            chosen.append(lease)
    if not chosen and most > 0:
        chosen = _evening(me, donor, used, worth)
    return [x.name for x in chosen]


def _evening(
    me: UnitMember, donor: UnitMember, used: Mapping[UUID, float], worth: Sequence[PlannedLease]
) -> list[PlannedLease]:
    """Return the lease after whose move the more used of two hosts carries least, if that helps.

    Every such move lowers the use of the most used host for good, so nothing goes back and forth.
    """

    def most_used(lease: PlannedLease) -> float:
        left = used[donor.host] - lease.load / donor.weight
        return max(left, used[me.host] + lease.load / me.weight)

    best = min(worth, key=lambda x: (most_used(x), x.load, x.name), default=None)
    if best is None or most_used(best) > used[donor.host] - GAIN:
        return []
    return [best]


def extremes(used: Mapping[UUID, float]) -> tuple[UUID, UUID]:
    """Return the least and the most used host; there is at least one."""
    ordered = sorted(used, key=lambda host: (used[host], host))
    return ordered[0], ordered[-1]


def _mean(used: Mapping[UUID, float]) -> float:
    return fsum(used.values()) / len(used)
