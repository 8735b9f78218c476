"""Rate limits over several windows at once, that hold across restarts.

    spent = Windows((Rate(10, per=1), Rate(100_000, per=86_400)), burst=20)
    spent.admit(1, now)  # 0.0: admitted; else the seconds until it may be

A cost is charged to all windows or to none. In any window of a rate no more is admitted than the
rate's amount and the burst; over a long time no more than the rate.

A window is divided into 64 slots, and a slot counts until the whole of it has left the window. So
the bound is exact, a window costs 64 numbers, and at most one 64th of the rate is lost.

What is not known to be unspent counts as spent. `reserve` marks a cost as spent before it is
stored; only so much is admitted until the next one. After a restart the rest of it stays spent.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from relevo.errors import InvalidValue

SLOTS: Final = 64
PER_SECONDS_MAX: Final = 366 * 86_400.0
AMOUNT_MAX: Final = 10**12
RATES_MAX: Final = 8
_EPSILON: Final = 1e-9


class Rate(Struct, frozen=True):
    """So much in any `per` seconds."""

    amount: float
    per: float = 1.0


class WindowState(Struct, frozen=True):
    """What was spent of one rate."""

    slots: tuple[tuple[int, float], ...] = ()
    """Costs by number of slot."""
    level: float = 0.0
    """What the bucket of the burst lacks."""
    level_at: float = 0.0


_UNSPENT: Final = WindowState()


class WindowsState(Struct, frozen=True):
    """What was spent, as it is stored; what was reserved is in it."""

    rates: tuple[Rate, ...]
    burst: float
    windows: tuple[WindowState, ...]
    now: float = 0.0


class _Window:
    """What was spent of one rate."""

    def __init__(self, rate: Rate, burst: float, state: WindowState = _UNSPENT) -> None:
        self.rate = rate
        self.limit = rate.amount + burst
        self._burst = burst
        self._slot = rate.per / SLOTS
        self._slots = dict(state.slots)
        self._total = math.fsum(self._slots.values())
        self._level, self._level_at = state.level, state.level_at

    def wait(self, cost: float, now: float) -> float:
        """Return the seconds until the cost would be admitted."""
        self._forget(now)
        return max(self._slots_wait(cost, now), self._level_wait(cost, now))

    def spend(self, cost: float, at: float, now: float) -> None:
        """Charge a cost now that is used at a time, which may lie ahead."""
        slot = math.floor(at / self._slot)
        self._slots[slot] = self._slots.get(slot, 0.0) + cost
        self._total += cost
        if self._burst:
            self._level = self._level_now(now) + cost
            self._level_at = max(self._level_at, now)

    def refund(self, cost: float, at: float) -> None:
        """Take back a charge that was made at a time and not used."""
        slot = math.floor(at / self._slot)
        back = min(cost, self._slots.get(slot, 0.0))
        if back:
            self._slots[slot] -= back
            self._total -= back
            self._level = max(0.0, self._level - back)

    def state(self) -> WindowState:
        return WindowState(tuple(sorted(self._slots.items())), self._level, self._level_at)

    def is_idle(self, now: float) -> bool:
        self._forget(now)
        return not self._slots and not self._level_now(now)

    def history(self) -> list[tuple[float, float]]:
        """Return the costs with the end of their slot: they were spent before."""
        return [((slot + 1) * self._slot, cost) for slot, cost in sorted(self._slots.items())]

    def _forget(self, now: float) -> None:
        gone = [slot for slot in self._slots if self._end_of(slot) <= now]
        for slot in gone:
            del self._slots[slot]
        if gone:
            self._total = math.fsum(self._slots.values())

    def _end_of(self, slot: int) -> float:
        """Return when a slot has left the window as a whole."""
        return (slot + 1) * self._slot + self.rate.per

    def _slots_wait(self, cost: float, now: float) -> float:
        over = self._total + cost - self.limit
        if over <= _EPSILON:
            return 0.0
        for slot in sorted(self._slots):
            over -= self._slots[slot]
            if over <= _EPSILON:
                return max(self._end_of(slot) - now, _EPSILON)
        return max(self.rate.per, _EPSILON)

    def _level_now(self, now: float) -> float:
        gone = max(0.0, now - self._level_at) * self.rate.amount / self.rate.per
        return max(0.0, self._level - gone)

    def _level_wait(self, cost: float, now: float) -> float:
        """Without a burst the window alone bounds the rate."""
        if not self._burst:
            return 0.0
        over = self._level_now(now) + cost - self.limit
        return 0.0 if over <= _EPSILON else over * self.rate.per / self.rate.amount


class Windows:
    """What was spent of several rates; all admit, or none is charged.

    Times are the store's, in seconds. One that runs backwards counts as standing still.
    """

    def __init__(self, rates: tuple[Rate, ...], burst: float = 0.0) -> None:
        self._rates, self._burst = checked_rates(rates), _checked_burst(burst)
        self._windows = [_Window(rate, burst) for rate in self._rates]
        self._now = 0.0
        self._reserved = 0.0
        self._reserved_at = 0.0

    @classmethod
    def restored(cls, state: WindowsState, now: float) -> Windows:
        """Return what was stored; what was reserved then may have been spent until now."""
        found = cls(state.rates, state.burst)
        found._now = max(state.now, 0.0)
        found._windows = [
            _Window(rate, state.burst, window)
            for rate, window in zip(state.rates, state.windows, strict=True)
        ]
        found._tick(now)
        return found

    @classmethod
    def spent(cls, rates: tuple[Rate, ...], burst: float, now: float) -> Windows:
        """Return the windows of a limit of which nothing is known: all of it counts as spent."""
        found = cls(rates, burst)
        found._tick(now)
        for window in found._windows:
            window.spend(window.limit, now, now)
        return found

    def state(self) -> WindowsState:
        """Return what is to be stored."""
        windows = tuple(window.state() for window in self._windows)
        return WindowsState(self._rates, self._burst, windows, self._now)

    @property
    def most(self) -> float:
        """The largest cost that can be admitted at once."""
        return min(window.limit for window in self._windows)

    @property
    def reserved(self) -> float:
        """What may still be admitted before the next `reserve`."""
        return self._reserved

    def wait(self, cost: float, now: float) -> float:
        """Return the seconds until a cost would be admitted, 0 if it would be now.

        Raises `InvalidValue` for a cost that never is.
        """
        if not 0 < cost <= self.most + _EPSILON:
            raise InvalidValue(
                f"cost is {cost:g}; this limit admits more than 0, and {self.most:g} at most at"
                " once",
                pointer="cost",
            )
        now = self._tick(now)
        return max(window.wait(cost, now) for window in self._windows)

    def admit(self, cost: float, now: float) -> float:
        """Charge a cost to all windows and return 0, or return the seconds until it may be."""
        wait = self.wait(cost, now)
        if not wait:
            self._spend(cost, self._now)
        return wait

    def admit_reserved(self, cost: float, now: float) -> bool:
        """Admit a cost that `reserve` has charged; False if that does not suffice, or is over."""
        now = self._tick(now)
        if now > self._reserved_at or not 0 < cost <= self._reserved + _EPSILON:
            return False
        self._reserved = max(0.0, self._reserved - cost)
        return True

    def reserve(self, cost: float, now: float, *, seconds: float) -> float:
        """Charge as much of a cost as is admitted, to be used within so many seconds.

        It counts as spent at the end of that time, so that the bounds hold whenever it is used.
        What was left of the last one is charged no longer. Returns what is reserved; store the
        state before any of it is admitted.
        """
        now = self._tick(now)
        for window in self._windows:
            window.refund(self._reserved, self._reserved_at)
        self._reserved, self._reserved_at = self.lend(cost, now, seconds=seconds), now + seconds
        return self._reserved

    def lend(self, cost: float, now: float, *, seconds: float) -> float:
        """Charge as much of a cost as is admitted, for a host that uses it within that time."""
        now = self._tick(now)
        lent = min(cost, self._admitted_now(now))
        if lent <= 0:
            return 0.0
        self._spend(lent, now + seconds)
        return lent

    def change(self, rates: tuple[Rate, ...], burst: float) -> None:
        """Change the rates; what was spent counts for the new ones, as far as it is known."""
        rates, burst = checked_rates(rates), _checked_burst(burst)
        windows = []
        for rate in rates:
            window = _Window(rate, burst)
            for at, cost in self._known_for(rate).history():
                if at + rate.per > self._now:
                    window.spend(cost, at, min(at, self._now))
            windows.append(window)
        self._rates, self._burst, self._windows = rates, burst, windows
        self._reserved = 0.0

    def is_idle(self, now: float) -> bool:
        """Whether nothing that was spent matters any more."""
        now = self._tick(now)
        return not self._reserved and all(window.is_idle(now) for window in self._windows)

    def _known_for(self, rate: Rate) -> _Window:
        """The finest history that is as long as the window of a rate, else the longest."""
        known = sorted(self._windows, key=lambda window: window.rate.per)
        return next((one for one in known if one.rate.per >= rate.per), known[-1])

    def _admitted_now(self, now: float) -> float:
        """Return the largest whole cost that would be admitted."""
        low, high = 0, math.floor(self.most + _EPSILON)
        while low < high:
            middle = (low + high + 1) // 2
            if max(window.wait(middle, now) for window in self._windows):
                high = middle - 1
            else:
                low = middle
        return float(low)

    def _spend(self, cost: float, at: float) -> None:
        for window in self._windows:
            window.spend(cost, at, self._now)

    def _tick(self, now: float) -> float:
        self._now = max(self._now, now)
        return self._now


def checked_rates(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    """Return rates that can be kept; raises `InvalidValue`."""
    if not 1 <= len(rates) <= RATES_MAX:
        raise InvalidValue(f"a limit has 1 to {RATES_MAX} rates, not {len(rates)}", pointer="rates")
    for rate in rates:
        if not 0 < rate.amount <= AMOUNT_MAX or not 0 < rate.per <= PER_SECONDS_MAX:
            raise InvalidValue(
                f"a rate of {rate.amount:g} per {rate.per:g} seconds is out of bounds; give 1 to"
                f" {AMOUNT_MAX:g} per up to {PER_SECONDS_MAX:g} seconds",
                pointer="rates",
            )
    return tuple(rates)


def _checked_burst(burst: float) -> float:
    if not 0 <= burst <= AMOUNT_MAX:
        raise InvalidValue(
            f"burst is {burst:g}; it must be from 0 to {AMOUNT_MAX:g}", pointer="burst"
        )
    return burst
