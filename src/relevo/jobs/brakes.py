"""The failure-rate brake: an extension that keeps failing is stopped for a while.

Hosts count failed runs by extension and minute. The leader compares the counts: jobs of an
extension with too many wait, others go on as ever. After the pause one of them is let through; if
it succeeds the rest follows, if it fails the pause starts again.

When a brake comes on, hosts give back claimed jobs that have not begun. A host whose own runs
fail too often does not wait for the leader (`FailureWatch`): of one handler it runs at most as many
failing jobs as the brake allows, and one for each slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from relevo import limits
from relevo.errors import RelevoError
from relevo.jobs import parcels
from relevo.jobs.core import codes
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from relevo.jobs.running.claims import JobSettlement
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
log = get_logger(__name__)
PAUSE: Final = timedelta(minutes=10)
ROWS: Final = 1_000
GATHER_SECONDS: Final = 0.2
NOTED_MAX: Final = 10_000
"""Maximum number of failures that wait to be counted; more are not counted."""


class Brake(Struct, frozen=True):
    """An extension whose jobs wait, and the job that tests whether it still fails."""

    extension: str
    since: datetime
    until: datetime
    probe: UUID | None


class FailureWatch:
    """Finds handlers that fail so often on this host that no job of them may begin here.

    The leader adds up the failures of all hosts about once a second. A host with quick handlers
    runs hundreds of claimed jobs in that time. So each host also counts its own failures: once a
    handler has failed here more often than the brake allows, none of its jobs begins here until
    the database has counted the failures and the brake is on. Times are seconds of the host's
    monotonic clock.
    """

    def __init__(self, failures_max: int, span: float) -> None:
        self._failures_max = failures_max
        self._span = span
        self._failures: dict[str, deque[float]] = {}
        self._uncounted: Counter[str] = Counter()
        """Failures that the database has not counted yet."""
        self._stopped: dict[str, float] = {}
        """Until when no job of a handler begins here."""

    def failed(self, handler: str, now: float) -> bool:
        """Record a failure; returns whether it stops the handler."""
        self._uncounted[handler] += 1
        failures = self._failures.setdefault(handler, deque(maxlen=self._failures_max + 1))
        failures.append(now)
        if len(failures) <= self._failures_max or now - failures[0] > self._span:
            return False
        failures.clear()  # if the brake does not come on, as many are let through again
        self._stopped[handler] = now + limits.JOB_BRAKE_WAIT_SECONDS_MAX
        return True

    def counted(self, failures: Counter[str]) -> Set[str]:
        """Record counted failures; returns stopped handlers without uncounted ones."""
        self._uncounted -= failures
        return {one for one in self._stopped if not self._uncounted[one]}

    def release(self, handlers: Set[str]) -> None:
        """Let jobs of handlers begin again."""
        for handler in handlers:
            self._stopped.pop(handler, None)

    def stopped(self, now: float) -> Set[str]:
        """Return the handlers whose jobs must not begin here."""
        if self._stopped:
            self.release({one for one, until in self._stopped.items() if until <= now})
        return self._stopped.keys()


class Brakes:
    """Counts failures on every host, and brakes on the leader."""

    def __init__(
        self, database: Database, wakeups: Wakeups, *, failures: int, minutes: float
    ) -> None:
        self._database = database
        self._wakeups = wakeups
        self._failures = failures
        self._span = timedelta(minutes=minutes)
        self._here = FailureWatch(failures, minutes * 60)
        self._noted: list[UUID] = []
        self._noted_handlers: Counter[str] = Counter()
        self._came = asyncio.Event()

    @property
    def on(self) -> bool:
        """Whether there is a brake at all: `jobs_brake_failures` is not 0."""
        return self._failures > 0

    def stops(self, settlement: JobSettlement) -> bool:
        """Record how a run ended; returns whether its handler has now failed too often here.

        Then no job of the handler may begin here, and claimed jobs are given back.
        """
        return (
            self.on
            and _is_failure(settlement)
            and self._here.failed(settlement.claim.handler, time.monotonic())
        )

    @property
    def stopped(self) -> Set[str]:
        """Handlers whose jobs must not begin here until their failures are counted."""
        return self._here.stopped(time.monotonic())

    def note(self, settled: Sequence[JobSettlement]) -> None:
        """Record settled runs, to count their failures."""
        if not self.on:
            return
        failed = [one.claim for one in settled if _is_failure(one)]
        if failed:
            self._noted += [one.id for one in failed[: NOTED_MAX - len(self._noted)]]
            self._noted_handlers.update(one.handler for one in failed)
            self._came.set()

    async def count(self) -> None:
        """Store the counts as they come; brake handlers at once that failed too often here."""
        while True:
            await self._came.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._came.clear()
            noted, self._noted = self._noted, []
            handlers, self._noted_handlers = self._noted_handlers, Counter()
            known = self._here.counted(handlers)
            try:
                await self._database.write(SQL.count_failures, noted)
                if known:
                    await self.watch()
                    self._here.release(known)
            except RelevoError as error:
                log.warning(
                    "jobs.failures_not_counted", failures=len(noted), error=str(error)[:500]
                )

    async def watch(self) -> int:
        """Put brakes on, probe, and lift them; returns how many jobs were touched."""
        for row in await self._database.write(SQL.watch_brakes, self._failures, self._span, PAUSE):
            log.warning(f"jobs.brake_{row['change']}", extension=row["extension"])
        total = 0
        for statement in (SQL.brake_jobs, SQL.release_braked_jobs):
            total += await until_fewer(ROWS, partial(self._touch, statement))
        if total:
            self._wakeups.send("jobs")
        return total

    async def _touch(self, statement: str) -> int:
        touched: int = (await self._database.write(statement, ROWS))[0][0]
        return touched

    async def list(self) -> list[Brake]:
        """Return the brakes that are on."""
        rows = await self._database.fetch(SQL.brakes)
        return [Brake(row["extension"], row["since"], row["until"], row["probe"]) for row in rows]

    async def deactivate(self, extension: str) -> int:
        """Cancel the jobs of an extension that have not started, in chunks; returns how many."""
        total = 0
        while True:
            await parcels.unpack_waiting(self._database, extension, ROWS)
            moved = await self._database.run(lambda tx: self._deactivate(tx, extension))
            if not moved:
                return total
            total += moved

    async def _deactivate(self, tx: Transaction, extension: str) -> int:
        rows = await tx.fetch(SQL.jobs_of_extension, extension, ROWS)
        if not rows:
            return 0
        keys = sorted({f"c{row['chain']}" for row in rows if row["chain"] is not None})
        if keys:
            await tx.execute(SQL.lock_gates, keys)
        return len(await tx.fetch(SQL.deactivate_jobs, [row["id"] for row in rows], keys))


def _is_failure(settlement: JobSettlement) -> bool:
    """Whether a run ended with an error.

    A handler that asks for a retry, without an error's code, has not failed. Neither has one
    that is tried again because the storage failed: else an outage would be followed by a pause.
    """
    return settlement.event == "fail" or (
        settlement.event == "retry" and settlement.error not in (None, codes.UNEXPECTED)
    )
