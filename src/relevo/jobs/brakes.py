"""The failure-rate brake: an extension that keeps failing is stopped for a while.

Hosts count failed runs by extension and minute. The leader compares the counts: jobs of an
extension with too many wait, others go on as ever. After the pause one of them is let through; if
it succeeds the rest follows, if it fails the pause begins anew.

What hosts have claimed and not begun is given back when a brake comes on. A host whose own runs
fail too often does not wait for the leader (`relevo.jobs.running.failures`): of one handler it runs
at most as many failing jobs as the brake allows, and one for each slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import structlog
from msgspec import Struct

from relevo.errors import RelevoError
from relevo.jobs.core import codes
from relevo.jobs.running.failures import FailureWatch
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.repeating import until_fewer

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from relevo.jobs.running.claims import Settlement
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
log = structlog.get_logger(__name__)
PAUSE: Final = timedelta(minutes=10)
ROWS: Final = 1_000
GATHER_SECONDS: Final = 0.2
NOTED_MAX: Final = 10_000
"""Failures that wait to be counted; of more than that, nobody needs to know how many."""


class Brake(Struct, frozen=True):
    """An extension whose jobs wait, and the job that shows whether they have to."""

    extension: str
    since: datetime
    until: datetime
    probe: UUID | None


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

    def stops(self, settlement: Settlement) -> bool:
        """Take in how a run ended just now; whether its handler failed too often here by that.

        Then nothing of the handler is to begin here: what was claimed is to be given back.
        """
        return (
            self.on
            and _is_failure(settlement)
            and self._here.failed(settlement.claim.handler, time.monotonic())
        )

    @property
    def stopped(self) -> Set[str]:
        """Handlers of which nothing is to begin here, until their failures are counted."""
        return self._here.stopped(time.monotonic())

    def note(self, settled: Sequence[Settlement]) -> None:
        """Take in what was settled, to be counted."""
        if not self.on:
            return
        failed = [one.claim for one in settled if _is_failure(one)]
        if failed:
            self._noted += [one.id for one in failed[: NOTED_MAX - len(self._noted)]]
            self._noted_handlers.update(one.handler for one in failed)
            self._came.set()

    async def count(self) -> None:
        """Write the counts, as they come; brake at once what has failed too often here."""
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
        """Cancel the jobs of an extension that have not started, in chunks; how many."""
        total = 0
        while True:
            await self._database.write(SQL.unpack_ready, extension, ROWS)
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


def _is_failure(settlement: Settlement) -> bool:
    """Whether a run ended with an error.

    A handler that asks for a retry, without an error's code, has not failed. Neither has one
    that is tried again because the storage failed: else an outage would be followed by a pause.
    """
    return settlement.event == "fail" or (
        settlement.event == "retry" and settlement.error not in (None, codes.UNEXPECTED)
    )
