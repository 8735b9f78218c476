"""`app.jobs`: submit, look at, command and wait for system jobs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from relevo.errors import InvalidValue
from relevo.jobs import states, submission
from relevo.jobs.brakes import Brakes
from relevo.jobs.commands import Ask, Commands, Scope
from relevo.jobs.errors import JobFailed, JobMissing, JobRefused
from relevo.jobs.loops import Timers
from relevo.jobs.model import Job, Recurrence, aware, new_ids
from relevo.jobs.querying import EVERYBODY, JobQuery
from relevo.jobs.registry import EXECUTE, Registry
from relevo.jobs.running.host import JobHost
from relevo.jobs.running.processes import Processes
from relevo.jobs.submission import Submitting
from relevo.jobs.views import Views
from relevo.jobs.waiting import Waiting
from relevo.jobs.waits import Waits
from relevo.leases.loops import Duty
from relevo.postgres import catalog, clock
from relevo.postgres.attaching import Attachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from relevo.jobs.model import Lane, Submission
    from relevo.jobs.running.context import JobContext
    from relevo.leases import Leases
    from relevo.postgres import Database, Wakeups
    from relevo.querying.model import Caller
    from relevo.settings import Settings
    from relevo.supervision import Supervisor

R = TypeVar("R")
SQL = catalog.load(__package__)
SERVED_SECONDS = 60.0
TEND_SECONDS = 0.75
"""How often the leader looks at what happens to jobs by itself: timers are to be in time by 1 s."""


class JobHandle(Generic[R]):
    """One job, by its key; nothing is read until it is asked for."""

    def __init__(self, jobs: Jobs, id: UUID) -> None:  # noqa: A002 - the word of the API
        self._jobs = jobs
        self.id = id

    def __repr__(self) -> str:
        """Return its key."""
        return f"JobHandle({self.id})"

    async def get(self) -> Job:
        """Return the record as it is now."""
        return await self._jobs.get(self.id)

    async def cancel(self, *, series: bool = False) -> None:
        """Cancel; a running handler is asked to stop. `series=True` also ends the series."""
        await self._jobs.command(self.id, "cancel", series=series)

    async def pause(self) -> None:
        """Ask a running handler to yield at its next checkpoint."""
        await self._jobs.command(self.id, "pause")

    async def resume(self) -> None:
        """Let a suspended job go on."""
        await self._jobs.command(self.id, "resume")

    async def postpone(self, until: datetime) -> None:
        """Let the job wait until an instant."""
        await self._jobs.command(self.id, "postpone", until=aware(until, "until"))

    async def delete(self) -> None:
        """Remove the record; a running handler is asked to stop."""
        await self._jobs.command(self.id, "delete")

    async def wait(self, timeout: float | None = None) -> R:
        """Return what the handler returned, once the job has succeeded.

        Raises `JobFailed` if it ends otherwise, `TimeoutError` if it does not end in time. A job
        whose record was removed by then counts as succeeded without a result; submit with
        `retain=True` to keep it.
        """
        end = await self._jobs.end_of(self.id, timeout)
        if end.status in (None, states.SUCCEEDED):
            result: Any = None if end.result is None else msgspec.json.decode(end.result)
            return cast("R", result)
        told = end.friendly or (end.message or "").strip()[-500:]
        raise JobFailed(
            f"job {self.id} ended as {states.LABELS[end.status]!r}" + (f": {told}" if told else ""),
            error_code=end.error_code,
        )


class Jobs(Attachable):
    """The asynchronous service of an app.

    >>> job = await app.jobs.submit("rebuild-index", {"shard": 3}, token="index")  # doctest: +SKIP
    >>> await job.wait(timeout=60)  # doctest: +SKIP
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__("app.jobs")
        self.registry = Registry()
        self._settings = settings
        self._strict = frozenset(
            name for name in ("strict_states", "strict_delete") if getattr(settings, f"jobs_{name}")
        )
        self._writing: Submitting | None = None
        self._commanding: Commands | None = None
        self._waiting: Waiting | None = None
        self._host: JobHost | None = None
        self._supervisor: Supervisor | None = None
        self._processes = Processes()
        self._numbers = itertools.count(1)
        self._brakes: Brakes | None = None
        self._waits: Waits | None = None
        self.service_for: Callable[[JobContext], Any] | None = None
        """What gives a run its `ctx.service`: the event pipeline."""

    def attach(self, database: Database, wakeups: Wakeups) -> None:
        """Connect, or connect anew."""
        super().attach(database, wakeups)
        self._writing = Submitting(database, wakeups)
        self._commanding = Commands(database, wakeups, strict=self._strict)
        self._waiting = Waiting(database, wakeups)
        self._brakes = Brakes(
            database, wakeups, failures=self._settings.jobs_brake_failures,
            minutes=self._settings.jobs_brake_minutes,
        )  # fmt: skip
        self._waits = Waits(database, wakeups)

    async def close(self) -> None:
        """Finish what was accepted."""
        if self._writing is not None and self._commanding is not None and self._waiting is not None:
            await self._writing.close()
            await self._commanding.close()
            await self._waiting.close()

    def configure(self, *lanes: Lane) -> None:
        """Add lanes, or change those that there are; before handlers name them."""
        for one in lanes:
            self.registry.configure(one)

    async def submit(
        self,
        handler: str,
        data: Any = None,
        *,
        tx: Any = None,
        name: str | None = None,
        token: str | None = None,
        start: datetime | None = None,
        lane: str | None = None,
        priority: int | None = None,
        owner: UUID | None = None,
        recurrence: str | Recurrence | None = None,
        timezone: str | None = None,
        retain: bool = False,
        on_failure: str = "continue",
        system: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> JobHandle[Any]:
        """Submit a job for a handler; it is stored when this returns.

        `tx` is a connection of the caller, in a transaction: then the job exists if and when that
        commits. Jobs of one `token` run one after the other, in the order of their submits;
        `on_failure="hold"` suspends the rest of them if this one fails.
        """
        if on_failure not in ("continue", "hold"):
            raise InvalidValue(f"on_failure is continue or hold, not {on_failure!r}")
        extra = dict(options or {})
        flags = {"retain": retain, "hold": on_failure == "hold", "system": system}
        extra |= {key: True for key, value in flags.items() if value}
        job = submission.checked(
            handler, data, name=name, token=token, start=start, lane=lane, priority=priority,
            owner=owner, options=extra,
        )  # fmt: skip
        if recurrence:
            job = await self._recurring(job, recurrence, timezone)
        if tx is not None:
            await submission.submit_in(tx, job)
        else:
            await self._writer.one(job)
        return JobHandle(self, job.id)

    async def _recurring(
        self, job: Submission, recurrence: str | Recurrence, timezone: str | None
    ) -> Submission:
        if isinstance(recurrence, str):
            recurrence = Recurrence(pattern=recurrence, timezone=timezone, start=job.start)
        now = await clock.now(self.database)
        kind = (job.options or {}).get("operation_type")
        known = self.registry.handlers.get(job.handler)
        kind = kind or (known.operation_type if known else EXECUTE)
        return submission.recurring(msgspec.structs.replace(job, start=None), recurrence, now, kind)

    async def submit_many(
        self, handler: str, data: Sequence[Any], **options: Any
    ) -> list[JobHandle[Any]]:
        """Submit a job for each element of `data`, in order, in one transaction."""
        if "id" in options:
            raise InvalidValue("many jobs cannot have one id; leave it out", pointer="id")
        common, ids = submission.checked(handler, **options), new_ids(len(data))
        await self._writer.many(common, ids, [submission.encoded(one) for one in data])
        return [JobHandle(self, one) for one in ids]

    def handle(self, id: UUID | str) -> JobHandle[Any]:  # noqa: A002 - the word of the API
        """Return a handle of a job by its key."""
        try:
            return JobHandle(self, id if isinstance(id, UUID) else UUID(id))
        except ValueError:
            raise InvalidValue(f"a job's id is a UUID, not {id!r}", pointer="id") from None

    async def get(self, id: UUID) -> Job:  # noqa: A002 - the word of the API
        """Return a job as it is now; raises `JobMissing` if there is none."""
        rows = await self.database.fetch(SQL.read_jobs, [id])
        if not rows:
            raise JobMissing(f"there is no job {id}")
        return Job.of(rows[0])

    async def blocked_by(self, ids: Sequence[UUID]) -> dict[UUID, UUID]:
        """Return for jobs of chains the job that each waits for."""
        rows = await self.database.fetch(SQL.chain_heads, list(ids)) if ids else []
        return {row["id"]: row["head"] for row in rows}

    def query(self, caller: Caller = EVERYBODY) -> JobQuery:
        """Return a query over all jobs, to be narrowed and awaited: `.where(state=READY).top(50)`.

        A `caller` sees what its scope leaves (A27).
        """
        return JobQuery(self.database, caller)

    @property
    def views(self) -> Views:
        """Ready-made views: counts, what waits, what fails, blocked chains."""
        return Views(self.database)

    async def command(
        self, id: UUID, command: str, *, until: datetime | None = None, series: bool = False,  # noqa: A002
        version: int | None = None, user: UUID | None = None, scope: Scope = Scope(),  # noqa: B008
    ) -> int:  # fmt: skip
        """Carry out cancel, pause, resume, postpone or delete; returns the status then."""
        if command not in states.COMMANDS:
            raise InvalidValue(
                f"no command is {command!r}; they are {', '.join(states.COMMANDS)}",
                pointer="command",
            )
        if (until is None) == (command == "postpone"):
            raise InvalidValue("an instant is given to postpone, and only to it", pointer="until")
        ask = Ask(id=id, command=command, until=until, version=version, user=user, scope=scope)
        status = await self.commands.give(ask)
        if series and command == "cancel":
            await self._end_series(id, user)
        return status

    async def _end_series(self, id: UUID, user: UUID | None) -> None:  # noqa: A002
        """Cancel the row that waits; one that is claimed meanwhile has left another."""
        while rows := await self.database.fetch(SQL.waiting_row, id):
            with contextlib.suppress(JobRefused):
                await self.commands.give(Ask(id=rows[0]["id"], command="cancel", user=user))

    async def end_of(self, id: UUID, timeout: float | None) -> Any:  # noqa: A002
        """Return how a job ended, once it has."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._waiting is not None
        async with asyncio.timeout(timeout):
            return await self._waiting.wait(id)

    @property
    def commands(self) -> Commands:
        """What carries out commands."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._commanding is not None
        return self._commanding

    async def signal(self, event: str, key: str = "", data: Any = None, *, tx: Any = None) -> int:
        """Give an event to the workflows that wait for it; returns how many did.

        If none does, the first that will gets it; it is kept for 30 days. With `tx`, a transaction
        of `app.database`, it happens when that commits.
        """
        return await self.waits.signal(event, key, data, tx=tx)

    @property
    def waits(self) -> Waits:
        """What suspended jobs wait for."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._waits is not None
        return self._waits

    @property
    def brakes(self) -> Brakes:
        """Which extensions fail too often, and what holds them back."""
        self._connected  # noqa: B018 - raises if not connected
        assert self._brakes is not None
        return self._brakes

    @property
    def _writer(self) -> Submitting:
        self._connected  # noqa: B018 - raises if not connected
        assert self._writing is not None
        return self._writing

    # The host's side.

    def duties(self) -> list[Duty]:
        """What one host does for all."""
        told = self._settings

        def kept(days: float) -> timedelta | None:
            return timedelta(days=days) if days else None

        timers = Timers(
            self.database, self.wakeups, crashes_max=told.jobs_crashes_max,
            retention={
                states.SUCCEEDED: kept(told.jobs_keep_succeeded_days),
                states.CANCELED: kept(told.jobs_keep_canceled_days),
                states.FAILED: kept(told.jobs_keep_failed_days),
            },
        )  # fmt: skip
        self.timers = timers
        tending = Duty("jobs.tend", TEND_SECONDS, self._tend)
        return [tending, *timers.duties(), *self.waits.duties()]

    async def _tend(self) -> None:
        """See to what happens to jobs by itself; an idle installation costs one look."""
        found = await self.database.fetchrow(SQL.tend)
        assert found is not None
        if found["lost"]:
            await self.timers.recover()
        if found["series"]:
            await self.timers.start_series()
        if found["waits"]:
            await self.waits.wake()
        if found["brakes"] and self.brakes.on:
            await self.brakes.watch()

    async def start(self, leases: Leases, supervisor: Supervisor) -> None:
        """Write which lanes and handlers there are; begin to claim and run."""
        lanes = self.registry.declared()
        await self.database.write(
            SQL.declare_lanes, [one.name for one in lanes], [one.events for one in lanes],
            [one.priority for one in lanes], [one.max_running_per_owner for one in lanes],
            idempotent=True,
        )  # fmt: skip
        if not self.registry.handlers:
            return
        await self._declare()
        self._supervisor = supervisor
        supervisor.run("jobs.declare", self._declare_often)
        supervisor.run("jobs.failures", self.brakes.count)
        supervisor.run("jobs.work", lambda: self._work(leases))

    async def _declare(self) -> None:
        found = list(self.registry.handlers.values())
        await self.database.write(
            SQL.declare_handlers, [one.name for one in found], [one.lane for one in found],
            [one.operation_type for one in found], [one.auto_delete for one in found],
            idempotent=True,
        )  # fmt: skip

    async def _declare_often(self) -> None:
        while True:
            await self._declare()
            await asyncio.sleep(SERVED_SECONDS)

    async def _work(self, leases: Leases) -> None:
        """Serve one life after the other."""
        while True:
            if not leases.may_act:
                await asyncio.sleep(0.1)
                continue
            self._host = JobHost(
                self.database, self.wakeups, leases, self.registry, self._processes.call,
                service_for=self.service_for, numbers=self._numbers, note=self.brakes.note,
            )  # fmt: skip
            await self._host.run()
            if self._host.stopping:  # whoever stops it ends this loop next
                await asyncio.Event().wait()

    async def stop(self, timeout: float) -> None:
        """Claim nothing more; let handlers end, then give back what they did not finish."""
        if self._supervisor is None:
            return
        if self._host is not None:
            await self._host.stop(timeout)
        await self._supervisor.stop("jobs.work")
        await self._supervisor.stop("jobs.failures")
        await self._supervisor.stop("jobs.declare")
        await self._processes.close()
        self._host = self._supervisor = None
