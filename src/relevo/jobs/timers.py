"""Timers of jobs: due series, jobs of lost hosts, unserved jobs, retention."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from relevo import limits
from relevo.errors import RelevoError
from relevo.jobs import parcels, series_rows
from relevo.jobs.batches import service as batches
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import DELETION_SERVICE
from relevo.jobs.model import UNSERVED
from relevo.jobs.submitting.submission import new_id
from relevo.kernel import cpu
from relevo.kernel.leases.loops import Duty
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.postgres.polling import Question
from relevo.kernel.postgres.repeating import until_fewer
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from relevo.kernel.postgres import Database, Transaction, Wakeups

SQL = catalog.load("relevo.jobs")
log = get_logger(__name__)
SERIES_ROWS: Final = 200
SERIES_BATCHES: Final = 100
"""Batches that are made ready before the leader continues with its other duties."""
RECOVER_ROWS: Final = 1_000
FORGET_ROWS: Final = 1_000


class Timers:
    """Duties of the leader that concern jobs."""

    def __init__(
        self, database: Database, wakeups: Wakeups, *, crashes_max: int,
        retention: dict[int, timedelta | None],
    ) -> None:  # fmt: skip
        self._database = database
        self._wakeups = wakeups
        self._crashes_max = crashes_max
        self._retention = retention
        self._forgotten: date | None = None

    def duties(self) -> list[Duty]:
        """Return the duties of the leader."""
        return [
            Duty("jobs.late_series", 10.0, self.mark_late, Question(SQL.late_series)),
            Duty("jobs.unserved", 60.0, self.fail_unserved),
            Duty("jobs.retention", 3_600.0, self.forget_daily),
            Duty("jobs.batches", 3_600.0, self.forget_batches),
            Duty("jobs.unique_keys", 600.0, self.forget_unique_keys),
        ]

    async def recover(self) -> int:
        """Take jobs from hosts that have ended; returns how many."""

        async def recover() -> int:
            taken = -1
            while taken < 0:  # parcels were unpacked first
                rows = await self._database.write(
                    SQL.recover, RECOVER_ROWS, self._crashes_max, limits.JOB_CRASHES_UNPROVEN_FACTOR
                )
                taken = rows[0][0]
            return taken

        total = await until_fewer(RECOVER_ROWS, recover)
        if total:
            log.info("jobs.recovered", jobs=total)
            self._wakeups.send("jobs")
        return total

    async def start_series(self) -> int:
        """Make due rows of series ready, or move them on; returns how many."""

        async def start() -> int:
            started: int = await self._database.run(self._start_series)
            if started:
                self._wakeups.send("jobs")
            return started

        # Rows that are due together wait for no further tick.
        return await until_fewer(SERIES_ROWS, start, rounds=SERIES_BATCHES)

    async def _start_series(self, tx: Transaction) -> int:
        rows = await tx.fetch(SQL.due_series, SERIES_ROWS)
        decided = []
        for row, found in await cpu.off_loop(series_rows.all_due, rows) if rows else ():
            if isinstance(found, RelevoError):  # a zone or a pattern that this host does not know
                log.warning("jobs.series_set_aside", job=str(row["id"]), error=found.message)
                await tx.execute(SQL.set_aside, row["id"], f"set aside: {found.message}")
            else:
                decided.append((row, found))
        run = [(row, one) for row, one in decided if one.action == "run"]
        later = [(row["id"], one) for row, one in decided if one.action == "later"]
        ended = [row["id"] for row, one in decided if one.action == "end"]
        if run:
            await series_rows.make_ready(tx, run)
        if later:
            await tx.execute(
                SQL.skip_series_rows, [id_ for id_, _ in later],
                [one.occurrence.nominal for _, one in later],
                [one.occurrence.ordinal for _, one in later],
            )  # fmt: skip
        if ended:
            gone = await tx.fetchval(SQL.end_series, ended)
            await tx.execute(SQL.announce_series_ends, gone or [])
        return len(rows)

    async def mark_late(self) -> int:
        """Note on ready rows of series how late they are; returns how many are."""
        total, after = 0, UUID(int=0)
        while True:
            rows = await self._database.fetch(SQL.ready_series, after, SERIES_ROWS)
            found = [(row["id"], text) for row in rows if (text := series_rows.late(row))]
            if found:
                await self._database.write(
                    SQL.mark_late, [id_ for id_, _ in found], [text for _, text in found]
                )
            total += len(found)
            if len(rows) < SERIES_ROWS:
                return total
            after = rows[-1]["series"]

    async def fail_unserved(self) -> int:
        """Fail jobs whose handler no host has had for too long; returns how many."""
        text = (
            f"no host has had a handler for this job for {UNSERVED.total_seconds() / 60:g} minutes"
        )
        await self._database.write(SQL.open_gates)
        await parcels.unpack_unserved(self._database, UNSERVED, RECOVER_ROWS)
        rows = await self._database.write(
            SQL.fail_unserved, UNSERVED, RECOVER_ROWS, codes.HANDLER_MISSING, text
        )
        return int(rows[0][0])

    async def forget_daily(self) -> int:
        """Remove old records once a day; a run that removed any leaves a record of type 14."""
        began = (await clock.read(self._database)).now
        if began.date() == self._forgotten:
            return 0
        total = await self.forget()
        self._forgotten = began.date()
        if total:
            await self._database.write(
                SQL.record_deletion, new_id(), DELETION_SERVICE, began,
                msgspec.json.encode({"removed": total}).decode(),
            )  # fmt: skip
        return total

    async def forget(self) -> int:
        """Remove records that are older than they are kept; returns how many."""
        kept = {status: age for status, age in self._retention.items() if age is not None}
        total, after = 0, (datetime.min.replace(tzinfo=UTC), 0)
        while kept and (
            rows := await self._database.write(
                SQL.forget_completed, list(kept), list(kept.values()), *after, FORGET_ROWS
            )
        ):
            total += rows[0]["removed"]
            after = (rows[0]["created_at"], rows[0]["sequence"])
        return total

    async def forget_batches(self) -> int:
        """Remove batches of which no record of a job is left; returns how many."""
        ages = self._retention.values()
        if None in ages:
            return 0
        return await batches.forget(self._database, max(age for age in ages if age is not None))

    async def forget_unique_keys(self) -> int:
        """Remove keys of unique jobs that count no more; returns how many."""
        total, after = 0, None
        while rows := await self._database.write(SQL.forget_unique_keys, after, FORGET_ROWS):
            total, after = total + rows[0]["removed"], rows[0]["key"]
        return total
