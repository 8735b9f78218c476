"""What is noted about the calls of a handler: figures, spans, load, and failures in a row."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from relevo.errors import DatabaseUnavailable, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.kernel.leases.hosts import instant
from relevo.kernel.running.verdicts import RetryLater, Suspend, verdict_in
from relevo.kernel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from relevo.feed.model import Change
    from relevo.kernel.leases import Lease, Leases
    from relevo.kernel.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)
FAILURES_MAX = 5
"""A lease whose calls fail so often in a row on one host goes to another one, if there is one."""
SIZES_ASKED = 50
"""Of so many changes of a call the size is looked at, at the least."""
NOT_THE_HANDLER = (LeaseLost, LeaseStoreError, OutcomeUnknown)
"""What a call may end with that is no failure of the handler."""


class Observer:
    """Notes what happens to a lease on this host, and to a call with some changes."""

    def __init__(
        self,
        metrics: Metrics,
        leases: Leases,
        lease: Lease,
        changes: Sequence[Change[Any]] = (),
    ) -> None:
        self._metrics = metrics
        self._leases = leases
        self._lease = lease
        self._changes = changes

    @asynccontextmanager
    async def call(self, attempt: int) -> AsyncIterator[None]:
        """Stand around one call of the handler, from its begin to its end."""
        lease, began = self._lease, instant()
        outcome = "cut"
        self._lag(self._age())
        lease.meter.begin(began)
        attributes: dict[str, str | int] = {
            "relevo.unit": lease.unit, "relevo.lease": lease.name, "relevo.epoch": lease.epoch,
            "relevo.attempt": attempt, "relevo.changes": len(self._changes),
        }  # fmt: skip
        try:
            with tracing.span("relevo.feed.call", attributes):
                yield
            outcome = "done"
        except NOT_THE_HANDLER:
            raise
        except Exception as error:
            outcome = _outcome_of(error)
            raise
        finally:
            self._ended(outcome, began)
            if outcome == "fail" and lease.failures >= FAILURES_MAX:
                await self._pass_on()

    def caught_up(self, in_flight: int = 0) -> None:
        """There is nothing left to read for the lease, and so much is still in calls."""
        self._lease.caught_up = True
        if not in_flight:
            self._lag(0.0)

    def close(self) -> None:
        """The lease is another host's from here on."""
        self._metrics.feed_lag.drop(self._lease.unit, self._lease.name)

    def _ended(self, outcome: str, began: float) -> None:
        lease, unit, now = self._lease, self._lease.unit, instant()
        lease.meter.end(now, changes=len(self._changes), size=_size_of(self._changes))
        self._metrics.runs.of("feed", unit).ended(outcome, now - began)
        if outcome == "fail":
            lease.failures += 1
        elif outcome == "done":
            lease.failures = 0
            self._metrics.feed_batches.labels(unit=unit).inc()
            self._metrics.feed_changes.labels(unit=unit).inc(len(self._changes))
            if lease.caught_up and not lease.meter.running:
                self._lag(0.0)

    async def _pass_on(self) -> None:
        """Try another host; without one, or without the store, it goes on here."""
        try:
            await self._leases.pass_on(self._lease)
        except (DatabaseUnavailable, OutcomeUnknown, LeaseLost) as error:
            log.info("feed.not_passed_on", lease=self._lease.name, error=str(error))

    def _age(self) -> float:
        """Seconds since the first change was committed, by the database's clock as far as known."""
        now = time.time() + self._leases.skew
        return max(0.0, now - self._changes[0].stamp)

    def _lag(self, seconds: float) -> None:
        self._metrics.feed_lag.set(self._lease.unit, self._lease.name, seconds)


def _outcome_of(error: Exception) -> str:
    match verdict_in(error):
        case RetryLater():
            return "retry"
        case Suspend():
            return "suspend"
    return "fail"


def _size_of(changes: Sequence[Change[Any]]) -> int:
    """About how much the bodies are; of many every few are asked, for it is only for balancing."""
    step = max(1, len(changes) // SIZES_ASKED)
    return step * sum([len(one.raw or "") for one in changes[::step]])
