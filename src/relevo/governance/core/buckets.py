"""A limit with a bucket for every key: bounded, and forgotten when idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from relevo.errors import Overloaded
from relevo.governance.core.windows import Rate, Windows, checked_rates

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS_MAX: Final = 100_000


class Buckets:
    """The windows of each key of a limit."""

    def __init__(
        self, rates: tuple[Rate, ...], burst: float = 0.0, *, keys_max: int = KEYS_MAX
    ) -> None:
        self._rates, self._burst = checked_rates(rates), burst
        self._keys_max = keys_max
        self._windows: dict[str, Windows] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._windows)

    def __contains__(self, key: str) -> bool:
        return key in self._windows

    def __iter__(self) -> Iterator[tuple[str, Windows]]:
        return iter(self._windows.items())

    @property
    def rates(self) -> tuple[Rate, ...]:
        """What each key may use."""
        return self._rates

    def of(self, key: str, now: float) -> Windows:
        """Return the windows of a key; raises `Overloaded` if too many keys are in use."""
        windows = self._windows.pop(key, None)
        if windows is None:
            self._make_room(now)
            windows = Windows(self._rates, self._burst)
        self._windows[key] = windows
        return windows

    def put(self, key: str, windows: Windows) -> None:
        """Take in what was stored of a key."""
        windows.change(self._rates, self._burst)
        self._windows[key] = windows

    def change(self, rates: tuple[Rate, ...], burst: float) -> None:
        """Change the rates of all keys."""
        self._rates, self._burst = checked_rates(rates), burst
        for windows in self._windows.values():
            windows.change(rates, burst)

    def forget_idle(self, now: float) -> list[str]:
        """Forget keys whose past does not matter any more; returns them."""
        gone = [key for key, windows in self._windows.items() if windows.is_idle(now)]
        for key in gone:
            del self._windows[key]
        return gone

    def _make_room(self, now: float) -> None:
        if len(self._windows) < self._keys_max:
            return
        oldest = next(iter(self._windows))
        if self._windows[oldest].is_idle(now):
            del self._windows[oldest]
        elif not self.forget_idle(now):
            raise Overloaded(
                f"the limit has {self._keys_max} keys in use, which is its bound; use fewer keys"
            )
