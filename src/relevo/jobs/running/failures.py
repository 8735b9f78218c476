"""Which handlers fail so often on this host that their brake has to come on.

The leader adds up the failures of all hosts about once a second. A host of quick handlers runs
hundreds of jobs in that time, which it has claimed ahead. So a host also counts for itself, as runs
end: once a handler has failed here alone more often than the brake allows, nothing of it begins
here until its failures are counted in the database and the brake is on.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from relevo import limits

if TYPE_CHECKING:
    from collections.abc import Set


class FailureWatch:
    """Failures of handlers on one host; times are seconds of its monotonic clock."""

    def __init__(self, failures_max: int, span: float) -> None:
        self._failures_max = failures_max
        self._span = span
        self._failures: dict[str, deque[float]] = {}
        self._uncounted: Counter[str] = Counter()
        """Failures that the database does not know of yet."""
        self._stopped: dict[str, float] = {}
        """Until when nothing of a handler begins here."""

    def failed(self, handler: str, now: float) -> bool:
        """Take in a failure; whether the handler is stopped by it."""
        self._uncounted[handler] += 1
        failures = self._failures.setdefault(handler, deque(maxlen=self._failures_max + 1))
        failures.append(now)
        if len(failures) <= self._failures_max or now - failures[0] > self._span:
            return False
        failures.clear()  # if the brake does not come on, as many are let through again
        self._stopped[handler] = now + limits.JOB_BRAKE_WAIT_SECONDS_MAX
        return True

    def counted(self, failures: Counter[str]) -> Set[str]:
        """Take in what the database knows now; returns stopped handlers of which it knows all."""
        self._uncounted -= failures
        return {one for one in self._stopped if not self._uncounted[one]}

    def release(self, handlers: Set[str]) -> None:
        """Let handlers begin again, as far as the database does."""
        for one in handlers:
            self._stopped.pop(one, None)

    def stopped(self, now: float) -> Set[str]:
        """Return the handlers of which nothing is to begin here."""
        if self._stopped:
            self.release({one for one, until in self._stopped.items() if until <= now})
        return self._stopped.keys()
