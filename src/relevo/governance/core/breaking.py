"""A circuit breaker: after too many failures calls are refused until the resource had a rest.

breaker = BreakerState(BreakerRules(failures=5, within=10, reset_after=30))
if breaker.ask(now):  # 0: go on; else the seconds to wait
    ...
breaker.succeeded(now)  # or failed(now)
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.kernel.machine import Machine, Transition

BREAKER: Final = Machine(
    "breaker",
    initial="closed",
    transitions=[
        Transition("closed", "trip", "open", "too many failures"),
        Transition("open", "rest", "half_open", "had its rest: a few calls may try"),
        Transition("half_open", "trip", "open", "a trial failed"),
        Transition("half_open", "recover", "closed", "the trials succeeded"),
    ],
)


class BreakerRules(Struct, frozen=True, kw_only=True):
    """When a breaker opens, and how it closes again."""

    failures: int = 5
    """So many failures open it,"""
    within: float = 10.0
    """if they come within so many seconds."""
    reset_after: float = 30.0
    """Seconds that it stays open."""
    trials: int = 1
    """Calls that must succeed before it closes; as many may be under way at once."""

    def __post_init__(self) -> None:
        if self.failures < 1 or self.trials < 1 or self.within <= 0 or self.reset_after <= 0:
            raise InvalidValue(
                "a breaker needs failures and trials of 1 or more, and within and reset_after of"
                " more than 0 seconds"
            )


class BreakerState:
    """One breaker; times are of one monotonic clock."""

    def __init__(self, rules: BreakerRules) -> None:
        self.rules = rules
        self.state = BREAKER.initial
        self._failed_at: deque[float] = deque(maxlen=rules.failures)
        self._opened_at = 0.0
        self._trying: deque[float] = deque()
        """When the trials under way began."""
        self._recovered = 0

    def ask(self, now: float) -> float:
        """Return 0 if a call may go on, else the seconds until it may be tried again.

        A call that goes on ends with `succeeded`, `failed` or `withdrawn`.
        """
        rest = self._opened_at + self.rules.reset_after - now
        if self.state == "open":
            if rest > 0:
                return rest
            self._go("rest")
            self._trying.clear()
            self._recovered = 0
        if self.state == "half_open":
            while self._trying and self._trying[0] <= now - self.rules.reset_after:
                self._trying.popleft()  # nobody told its end: it keeps no place for ever
            if len(self._trying) + self._recovered >= self.rules.trials:
                return max(0.1, min(1.0, self.rules.reset_after))
            self._trying.append(now)
        return 0.0

    def succeeded(self, now: float) -> None:
        """Take in a call that went well."""
        del now
        if self.state != "half_open" or not self._trying:
            return
        self._trying.popleft()
        self._recovered += 1
        if self._recovered >= self.rules.trials:
            self._go("recover")
            self._failed_at.clear()

    def failed(self, now: float) -> None:
        """Take in a call that failed because of the resource."""
        if self.state == "open":
            return
        self._failed_at.append(now)
        many = len(self._failed_at) == self.rules.failures
        if self.state == "half_open" or (many and self._failed_at[0] > now - self.rules.within):
            self._go("trip")
            self._opened_at = now
            self._failed_at.clear()

    def withdrawn(self) -> None:
        """Take in a call that ended without saying anything about the resource."""
        if self.state == "half_open" and self._trying:
            self._trying.popleft()

    def _go(self, event: str) -> None:
        self.state = BREAKER.next(self.state, event)
