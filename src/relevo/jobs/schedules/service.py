"""`app.jobs.schedules`: what handlers declare, brought into the database and operated there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from relevo.errors import Conflict, InvalidRecurrence, InvalidValue, NotFound
from relevo.jobs.core.operation_types import ASYNC_REQUEST
from relevo.jobs.model import Recurrence
from relevo.jobs.schedules.declaration import anchor_of
from relevo.jobs.states import status_word
from relevo.jobs.submitting import submission
from relevo.kernel import checking, cpu
from relevo.kernel.postgres import catalog, clock
from relevo.kernel.recurrence import describe, next_runs
from relevo.kernel.telemetry.logs import get_logger
from relevo.limits import JOB_UNSERVED_SECONDS_MAX, PAGE_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from relevo.jobs.handles import JobHandle
    from relevo.jobs.registry import Handler
    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database, Transaction
    from relevo.kernel.recurrence import Language

SQL = catalog.load(__package__)
log = get_logger(__name__)
ScheduleState = Literal["active", "paused", "ended"]
_CLAIMS_MAX: Final = 20
"""Claims that may come between two looks at a series before its change is given up."""


class LastRun(Struct, frozen=True, kw_only=True):
    """The latest run of a schedule that has started."""

    id: UUID
    status: str
    started_at: datetime | None


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule as it is now; `name` is that of its handler."""

    name: str
    rule: str
    timezone: str | None
    missed: str
    overlap: str
    state: ScheduleState
    next_run: datetime | None
    last_run: LastRun | None
    paused_until: datetime | None
    served: bool
    """Whether a host had the handler lately."""
    declared_at: datetime
    series: UUID
    """What `job list --series` takes: its runs."""
    anchor: datetime

    def describe(self, language: Language = "en") -> str:
        """Return the rule in plain words, with its time zone."""
        words = describe(self.rule, language)
        return words if self.timezone is None else f"{words} ({self.timezone})"

    def next_runs(self, n: int, now: datetime) -> list[datetime]:
        """Return the next instants of the rule after `now`, or after its pause; none if it ended.

        The run that waits comes first, which may have been postponed.
        """
        if self.state == "ended" or (self.state == "paused" and self.paused_until is None):
            return []
        waits = [] if self.next_run is None else [self.next_run]
        floor = max([now, *waits])
        more = next_runs(self.rule, n, now=floor, timezone=self.timezone, start=self.anchor)
        return [*waits, *more][:n]

    @classmethod
    def of(cls, row: asyncpg.Record) -> Schedule:
        """Return the schedule of a row."""
        recurrence = msgspec.json.decode(row["recurrence"], type=Recurrence)
        last = None
        if row["last_id"] is not None:
            last = LastRun(
                id=row["last_id"], status=status_word(row["last_status"]),
                started_at=row["last_started_at"],
            )  # fmt: skip
        paused = _is_paused(dict(row), row["now"])
        served = row["served_at"] is not None and row["now"] - row["served_at"] < timedelta(
            seconds=JOB_UNSERVED_SECONDS_MAX
        )
        state: ScheduleState = "active" if row["next_run"] is not None else "ended"
        return cls(
            name=row["name"], rule=recurrence.pattern, timezone=recurrence.timezone,
            missed=recurrence.missed, overlap=recurrence.overlap,
            state="paused" if paused else state, next_run=row["next_run"], last_run=last,
            paused_until=row["paused_until"] if paused else None, served=served,
            declared_at=row["declared_at"], series=row["series"], anchor=row["anchor"],
        )  # fmt: skip


class Schedules:
    """Lists, pauses, resumes and runs schedules, and stores what handlers declare.

    >>> await app.jobs.schedules.pause("report")  # doctest: +SKIP
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    @property
    def _database(self) -> Database:
        return self._jobs.database

    async def list(self, *, after: str = "", limit: int = PAGE_ROWS_MAX) -> list[Schedule]:
        """Return schedules by name, after a name."""
        return [
            Schedule.of(row) for row in await self._database.fetch(SQL.list, None, after, limit)
        ]

    async def get(self, name: str) -> Schedule:
        """Return a schedule; raises `NotFound` if there is none."""
        rows = await self._database.fetch(SQL.list, name, "", 1)
        if not rows:
            raise _missing(name)
        return Schedule.of(rows[0])

    async def next_runs(self, name: str, n: int = 10) -> Sequence[datetime]:
        """Return when a schedule runs next, in UTC."""
        schedule = await self.get(name)
        now = (await clock.read(self._database)).now
        return await cpu.off_loop(schedule.next_runs, n, now)

    async def pause(self, name: str, *, until: datetime | None = None) -> None:
        """Let no run start until a time, or until it is resumed; one that runs goes on."""
        if until is not None:
            until = checking.aware(until, "until").astimezone(UTC)

        async def work(tx: Transaction) -> None:
            row = await _locked(tx, name)
            if until is not None and until <= await clock.now(tx):
                raise InvalidValue(f"until is {until.isoformat()}, which is past", pointer="until")
            await tx.execute(SQL.pause, name, True, until)
            await self._restart(tx, {**row, "paused_at": True, "paused_until": until})

        await self._database.run(work)

    async def resume(self, name: str) -> None:
        """Let a paused or ended schedule go on with the next instant of its rule."""

        async def work(tx: Transaction) -> None:
            row = await _locked(tx, name)
            await tx.execute(SQL.pause, name, False, None)
            if not await self._restart(tx, {**row, "paused_at": None}):
                raise Conflict(
                    f"the rule of schedule {name!r} has no further instant; change it in the code"
                )

        await self._database.run(work)

    async def run(self, name: str, *, owner: UUID | None = None) -> JobHandle[Any]:
        """Submit a job of the schedule's handler now, beside its series.

        Unless runs may overlap, it waits for one that is under way.
        """
        schedule = await self.get(name)
        options = {"chain": f"s{schedule.series}"} if schedule.overlap == "queue" else None
        row = await self._database.fetchrow(SQL.token_of, name)
        token = None if row is None else row["token"]
        return await self._jobs.submit(
            name, token=token or "", owner=owner, options=None if token else options
        )

    async def delete(self, name: str) -> None:
        """Remove a schedule whose handler is gone, with its waiting run.

        A host that still declares it brings it back when it starts.
        """

        async def work(tx: Transaction) -> None:
            await self._remove(tx, await _locked(tx, name))

        await self._database.run(work)

    async def declare(self, handlers: Mapping[str, Handler]) -> None:
        """Bring schedules of handlers into the database, as they are declared in this process.

        Schedules of handlers that this process does not have are left alone.
        """
        rows = await self._database.fetch(SQL.stored, list(handlers))
        stored = {row["name"]: row["recurrence"] for row in rows}
        for name, handler in sorted(handlers.items()):
            text = None if handler.schedule is None else _text(handler, handler.schedule)
            if text == stored.get(name):
                continue
            token = None if text is None else await handler.token_of({})
            try:
                await self._database.run(
                    partial(self._declare_one, handler=handler, text=text, token=token),
                    idempotent=True,
                )
            except InvalidRecurrence as error:  # a database that is far ahead of its hosts
                log.warning("jobs.schedule_not_stored", schedule=name, error=error.message)

    async def _declare_one(
        self, tx: Transaction, *, handler: Handler, text: str | None, token: str | None
    ) -> None:
        name = handler.name
        if handler.schedule is None or text is None:
            found = await tx.fetchrow(SQL.lock, name)
            if found is not None:
                await self._remove(tx, dict(found))
                log.info("jobs.schedule_removed", schedule=name)
            return
        anchor = anchor_of(handler.schedule, await clock.now(tx))
        done = await tx.execute(SQL.declare, name, text, submission.new_id(), anchor, token)
        row = await _locked(tx, name)
        if done.endswith(" 0"):
            if row["recurrence"] == text:  # another host was first
                return
            await tx.execute(SQL.change, name, text, anchor, token)
        changed = {**row, "recurrence": text, "anchor": anchor, "token": token}
        await self._restart(tx, changed, keep_due=True)
        log.info("jobs.schedule_declared", schedule=name, rule=handler.schedule.pattern)

    async def _restart(
        self, tx: Transaction, row: Mapping[str, Any], *, keep_due: bool = False
    ) -> bool:
        """Put the waiting run of a locked schedule where its rule and its pause say.

        Returns whether there is a next run, or will be when the pause ends.
        """
        await _drop_rows(tx, row["series"], keep_due=keep_due)
        now = await clock.now(tx)
        floor = now
        if _is_paused(row, now):
            if row["paused_until"] is None:
                return True
            floor = row["paused_until"]
        recurrence = msgspec.json.decode(row["recurrence"], type=Recurrence)
        recurrence = msgspec.structs.replace(recurrence, start=row["anchor"])
        try:
            make = await cpu.off_loop(
                partial(submission.recurring, later_than=floor, of=row["series"]),
                recurrence, now, ASYNC_REQUEST,
            )  # fmt: skip
        except InvalidRecurrence:  # its end has come
            return False
        job = make(submission.checked(row["name"], token=row["token"] or None))
        await tx.execute(*submission.statement(submission.columns([job])))
        return True

    async def _remove(self, tx: Transaction, row: Mapping[str, Any]) -> None:
        await _drop_rows(tx, row["series"], keep_due=False)
        await tx.execute(SQL.remove, row["name"])
        await tx.execute(submission.SQL.announce_series_ends, [row["series"]])


async def _locked(tx: Transaction, name: str) -> dict[str, Any]:
    row = await tx.fetchrow(SQL.lock, name)
    if row is None:
        raise _missing(name)
    return dict(row)


async def _drop_rows(tx: Transaction, series: UUID, *, keep_due: bool) -> None:
    """Remove the run that has not started; a claim that comes between leaves another one."""
    for _ in range(_CLAIMS_MAX):
        await tx.execute(SQL.drop_rows, series, keep_due)
        if not await tx.fetchval(SQL.has_rows, series):
            return
    raise Conflict(f"the runs of series {series} begin too fast to change it; try again")


def _is_paused(row: Mapping[str, Any], now: datetime) -> bool:
    return row["paused_at"] is not None and (
        row["paused_until"] is None or row["paused_until"] > now
    )


def _text(handler: Handler, recurrence: Recurrence) -> str:
    """Return what is stored of a declaration; waiting runs have the lane and priority, too."""
    declared = {"lane": handler.lane, "priority": handler.priority}
    return msgspec.json.encode({**msgspec.structs.asdict(recurrence), **declared}).decode()


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no schedule {name!r}; handlers declare them with every=, cron= or recurrence=,"
        " and a host that has the handler stores it when it starts"
    )
