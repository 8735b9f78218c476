"""`app.jobs`: submit, look at, command and wait for system jobs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Unpack

from relevo.errors import InvalidValue
from relevo.jobs import states
from relevo.jobs.batches.service import Batches
from relevo.jobs.brakes import Brakes
from relevo.jobs.commands import Ask, CommandScope, JobCommands
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.jobs.handles import JobHandle as JobHandle
from relevo.jobs.handles import Known, Waiting
from relevo.jobs.matching import (
    CHUNK_ROWS,
    CommandedJobs,
    MatchingCommand,
    command_some,
    merged,
)
from relevo.jobs.model import CommonOptions, Job, SubmitOptions
from relevo.jobs.querying.chains import Chains
from relevo.jobs.querying.explanations import Explanations
from relevo.jobs.querying.query import EVERYBODY, JobQuery
from relevo.jobs.querying.views import Views
from relevo.jobs.registry import HandlerRegistry, forgotten
from relevo.jobs.schedules.service import Schedules
from relevo.jobs.submitting import submission
from relevo.jobs.submitting.submitter import Submitter, SubmitTerms, SubmitTools
from relevo.jobs.waits import Waits
from relevo.kernel import callables, checking
from relevo.kernel.part import PerConnection, Service
from relevo.kernel.postgres import catalog, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from relevo.jobs.batches.handles import BatchHandle
    from relevo.jobs.batches.model import Condition
    from relevo.jobs.core.reasons import JobExplanation
    from relevo.jobs.core.uniqueness import Uniqueness
    from relevo.jobs.model import Lane, Recurrence
    from relevo.jobs.registry import JobDefinition
    from relevo.jobs.running.context import JobContext
    from relevo.kernel.part import Connection
    from relevo.kernel.postgres import Database, Wakeups
    from relevo.kernel.querying.model import Caller
    from relevo.settings import Settings

SQL = catalog.load(__package__)


class Jobs(Service):
    """The asynchronous service of an app.

    >>> job = await app.jobs.submit("rebuild-index", {"shard": 3}, token="index")  # doctest: +SKIP
    >>> await job.wait(timeout=60)  # doctest: +SKIP
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        super().__init__(connection)
        self._schema = settings.schema
        self.registry = HandlerRegistry()
        self.service_for: Callable[[JobContext], Any] | None = None
        """Makes the `ctx.service` of a run: the event pipeline."""
        self._tools = PerConnection(
            connection, lambda database, wakeups: _Tools(database, wakeups, settings)
        )
        self._submitter = Submitter(self, lambda: self._tools().submits, settings.schema)

    def configure(self, *lanes: Lane) -> None:
        """Add lanes, or change existing ones; call this before handlers name them."""
        for lane in lanes:
            self.registry.configure(lane)

    @property
    def commands(self) -> JobCommands:
        """Carries out commands."""
        return self._tools().commands

    @property
    def waits(self) -> Waits:
        """Events and child jobs that suspended jobs wait for."""
        return self._tools().waits

    @property
    def brakes(self) -> Brakes:
        """Brakes on extensions that fail too often."""
        return self._tools().brakes

    @callables.named_if_forgotten(lambda _, handler="", *__, **___: forgotten(handler))
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
        unique: Uniqueness | None = None,
        recurrence: str | Recurrence | None = None,
        timezone: str | None = None,
        retain: bool = False,
        on_failure: str = "continue",
        system: bool = False,
        options: Mapping[str, Any] | None = None,
        batch: UUID | BatchHandle | None = None,
    ) -> JobHandle[Any]:
        """Submit a job for a handler; it is stored when this returns.

        `tx` is a connection of the caller, in a transaction: then the job exists if and when that
        commits. Jobs of one `token` run one after the other, in the order of their submits;
        `on_failure="hold"` suspends the rest of them if this one fails. Without a token it is that
        of the handler's own `token` function, if the handler is registered in this app.

        A second submit of a `unique` job answers with the first one, and `existed` of its handle
        is true: `True` compares all arguments, text is the key, a tuple names arguments, and
        `relevo.Unique` adds a window and states. `False` turns off what the handler says.
        """
        job = submission.checked(
            handler, data, name=name, token=token, start=start, lane=lane, priority=priority,
            owner=owner, retain=retain, on_failure=on_failure, system=system, options=options,
            batch=batch,
        )  # fmt: skip
        terms = SubmitTerms(
            tx=tx, unique=unique, recurrence=recurrence, timezone=timezone,
            own_token=token is not None,
        )  # fmt: skip
        return await self._submitter.one(job, data, terms)

    async def submit_many(
        self,
        handler: str,
        data: Sequence[Any],
        *,
        tx: Any = None,
        unique: Uniqueness | None = None,
        recurrence: str | Recurrence | None = None,
        timezone: str | None = None,
        **options: Unpack[CommonOptions],
    ) -> list[JobHandle[Any]]:
        """Submit a job for each element of `data`, in order, in one transaction.

        The options are those of `submit`, and apply to each job.
        """
        if strange := options.keys() - CommonOptions.__annotations__.keys():
            raise InvalidValue(f"submit_many has no option {min(strange)!r}; leave it out")
        terms = SubmitTerms(
            tx=tx, unique=unique, recurrence=recurrence, timezone=timezone,
            own_token=options.get("token") is not None,
        )  # fmt: skip
        common = submission.checked(handler, **options)
        return await self._submitter.many(common, data, terms)

    async def run_again(
        self, id: UUID, data: Any = None, **changes: Unpack[SubmitOptions]  # noqa: A002
    ) -> JobHandle[Any]:  # fmt: skip
        """Submit a new job like another one, with its data or other; raises `JobMissing`.

        The new job names the other one as its `origin`, has its handler, name, token, priority and
        owner unless `changes` say otherwise, and is in no batch and no series. To run the same job
        again, use `JobHandle.retry`.
        """
        job = await self.get(id)
        same = {"name": job.name, "priority": job.priority, "owner": job.owner, "token": job.token}
        options: dict[str, Any] = {**same, **changes}
        terms = SubmitTerms(
            tx=options.pop("tx", None), unique=options.pop("unique", None),
            recurrence=options.pop("recurrence", None), timezone=options.pop("timezone", None),
            own_token=options["token"] is not None,
        )  # fmt: skip
        data = job.data if data is None else data
        again = submission.checked(job.handler, data, origin=job.id, **options)
        return await self._submitter.one(again, data, terms)

    async def batch(
        self, name: str | None = None, *, then: str | JobDefinition[..., Any] | None = None,
        data: Any = None, condition: Condition = "ended", owner: UUID | None = None, tx: Any = None,
    ) -> BatchHandle:  # fmt: skip
        """Make a batch: many jobs under one id, to which jobs are submitted until it is closed.

        `then` names the handler of a job that runs once when the batch is closed and all of its
        jobs have ended, with `data` and the counts as its argument `batch`:
        `{"id": …, "name": …, "total": 9, "succeeded": 8, "failed": 1, "canceled": 0}`. With
        `condition="succeeded"` it runs only if all have succeeded, perhaps after retries.
        """
        return await self.batches.create(
            name, then=then, data=data, condition=condition, owner=owner, tx=tx
        )

    @property
    def batches(self) -> Batches:
        """The batches: get, list, close, cancel, wait for one."""
        return Batches(self, self._schema)

    def handle(self, id: UUID | str) -> JobHandle[Any]:  # noqa: A002 - the word of the API
        """Return a handle of a job by its key."""
        return JobHandle(self, checking.uuid("id", id, of="a job"))

    async def get(self, id: UUID) -> Job:  # noqa: A002 - the word of the API
        """Return a job as it is now; raises `JobMissing` if there is none."""
        rows = await self.database.fetch(SQL.read_jobs, [id])
        if not rows:
            raise JobMissing(f"there is no job {id}")
        return Job.of(rows[0])

    @property
    def chains(self) -> Chains:
        """Which jobs wait for others of their token."""
        return Chains(*self.connection.opened)

    async def explain(self, id: UUID, caller: Caller = EVERYBODY) -> JobExplanation:  # noqa: A002
        """Return why a job has not run, or where it runs; raises `JobMissing` if there is none.

        `says` is the reason in a sentence, such as that no live host has its handler, which job of
        its token blocks it, that a cap is reached, or how many jobs come before it.
        """
        return await self.explanations.job(id, caller)

    @property
    def explanations(self) -> Explanations:
        """Why jobs have not run, and which handlers no live host serves."""
        return Explanations(self.database)

    async def unblock(self, id: UUID, *, user: UUID | None = None) -> UUID:  # noqa: A002
        """Let a job no longer wait for the one before it in its chain; returns which that was.

        See `Chains.unblock`.
        """
        return await self.chains.unblock(id, user=user)

    @property
    def schedules(self) -> Schedules:
        """The schedules that handlers declare: list, pause, resume, run now."""
        return Schedules(self)

    def query(self, caller: Caller = EVERYBODY) -> JobQuery:
        """Return a query over all jobs, to be narrowed and awaited: `.where(state=READY).top(50)`.

        A `caller` sees only the jobs of its scope.
        """
        return JobQuery(self.database, caller)

    @property
    def views(self) -> Views:
        """Ready-made views: counts, waiting and failed jobs, blocked chains."""
        return Views(self.database)

    async def command(
        self, id: UUID, command: str, *, until: datetime | None = None, series: bool = False,  # noqa: A002
        version: int | None = None, user: UUID | None = None, scope: CommandScope = CommandScope(),  # noqa: B008
    ) -> int:  # fmt: skip
        """Carry out cancel, pause, resume, postpone, rerun or delete; returns the status then."""
        command, until = _checked(command, until)
        ask = Ask(id=id, command=command, until=until, version=version, user=user, scope=scope)
        status = await self.commands.give(ask)
        if series and command == "cancel":
            await self._end_series(id, user)
        return status

    async def command_all(
        self, query: JobQuery, command: str, *, until: datetime | None = None,
        user: UUID | None = None, progress: Callable[[CommandedJobs], None] | None = None,
    ) -> CommandedJobs:  # fmt: skip
        """Carry out a command on all jobs of a query, 500 in a transaction; returns the counts.

        >>> failed = app.jobs.query().where(status="failed", handler="mail")  # doctest: +SKIP
        >>> await app.jobs.command_all(failed, "retry")  # doctest: +SKIP

        The commands are cancel, pause, resume, postpone (with `until`), retry and delete. A job
        that refuses holds up no other. Jobs that are submitted meanwhile are left alone, and
        `progress` is called with the counts so far after each transaction.
        """
        command, until = _checked("rerun" if command == "retry" else command, until)
        query = query.created(before=await clock.now(self.database))
        asked = MatchingCommand(command=command, until=until, user=user)
        total, position = CommandedJobs(), None
        while True:
            some, position = await command_some(
                self.commands, query, asked, CHUNK_ROWS, position
            )  # fmt: skip
            total = merged(total, some)
            if progress is not None:
                progress(total)
            if position is None:
                return total

    async def _end_series(self, id: UUID, user: UUID | None) -> None:  # noqa: A002
        """Cancel the row that waits; one that is claimed meanwhile has left another."""
        while rows := await self.database.fetch(SQL.waiting_row, id):
            with contextlib.suppress(JobRefused):
                await self.commands.give(Ask(id=rows[0]["id"], command="cancel", user=user))

    async def end_of(
        self,
        id: UUID,  # noqa: A002 - the word of the API
        timeout: float | None,
        known: Known | None = None,
    ) -> Any:
        """Return how a job ended, once it has; `known` are the facts of its submit."""
        return await self._tools().waiting.wait(id, known, timeout)

    async def signal(self, event: str, key: str = "", data: Any = None, *, tx: Any = None) -> int:
        """Give an event to the workflows that wait for it; returns how many did.

        If none does, the first that will gets it; it is kept for 30 days. With `tx`, a transaction
        of `app.database`, it happens when that commits.
        """
        return await self.waits.signal(event, key, data, tx=tx)


def _checked(command: str, until: datetime | None) -> tuple[str, datetime | None]:
    """Return a command and its time, or refuse it."""
    if command not in states.COMMANDS:
        raise InvalidValue(
            f"{command!r} is not a command; use one of {', '.join(states.COMMANDS)}",
            pointer="command",
        )
    if (until is None) == (command == "postpone"):
        raise InvalidValue(
            "until is required for postpone, and allowed only there", pointer="until"
        )
    return command, None if until is None else checking.aware(until, "until")


class _Tools:
    """Carries out the calls of `Jobs` on one connection."""

    def __init__(self, database: Database, wakeups: Wakeups, settings: Settings) -> None:
        self.submits = SubmitTools(database, wakeups)
        self.waiting = Waiting(database, wakeups)
        self.waits = Waits(database, wakeups)
        self.brakes = Brakes(
            database, wakeups, failures=settings.jobs_brake_failures,
            minutes=settings.jobs_brake_minutes,
        )  # fmt: skip
        strict = ("strict_states", "strict_delete")
        self.commands = JobCommands(
            database, wakeups,
            strict=frozenset(one for one in strict if getattr(settings, f"jobs_{one}")),
        )  # fmt: skip

    async def close(self) -> None:
        """Finish accepted calls."""
        await self.submits.close()
        await self.commands.close()
        await self.waiting.close()
