"""`app.jobs`: submit, look at, command and wait for system jobs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from relevo.errors import InvalidValue
from relevo.jobs import states, submission, unique_submits
from relevo.jobs.brakes import Brakes
from relevo.jobs.commands import Ask, CommandScope, JobCommands
from relevo.jobs.core.uniqueness import unique_of
from relevo.jobs.errors import JobMissing, JobRefused
from relevo.jobs.handles import JobHandle as JobHandle
from relevo.jobs.handles import Known, Waiting
from relevo.jobs.known_handlers import KnownHandlers
from relevo.jobs.model import TOKEN_LENGTH_MAX, CommonOptions, Job
from relevo.jobs.querying.chains import Chains
from relevo.jobs.querying.explanations import Explanations
from relevo.jobs.querying.query import EVERYBODY, JobQuery
from relevo.jobs.querying.views import Views
from relevo.jobs.registry import EXECUTE, HandlerRegistry, forgotten
from relevo.jobs.schedules.service import Schedules
from relevo.jobs.submission import Submitting
from relevo.jobs.unique_submits import UniqueSubmits
from relevo.jobs.waits import Waits
from relevo.kernel import callables, checking, cpu
from relevo.kernel.part import PerConnection, Service
from relevo.kernel.postgres import catalog, clock, foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from relevo.jobs.core.reasons import JobExplanation
    from relevo.jobs.core.uniqueness import Unique, Uniqueness
    from relevo.jobs.model import Lane, Recurrence, Submission
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
        )  # fmt: skip
        self.registry.check_data(handler, data, job.data)
        if tx is not None:
            tx = foreign.in_schema(tx, self._schema)
        if token is None:
            job = await self._chained(job, data)
        await self._check_lane(job, tx)
        recur = await self._recurring(job, recurrence, timezone, tx)
        if recur is not None:
            job = recur(job)
        if (rule := self._unique(handler, unique)) is not None:
            job = await unique_submits.marked(job, rule, self.registry.handlers.get(handler), data)
        number, first = None, job.id
        if rule is None and tx is None:
            await self._tools().writing.one(job)
        elif tx is None:
            first = await self._tools().unique.one(job)
        else:
            number, existing = await self._store_in(tx, submission.columns([job]), rule)
            first = existing.get(job.id, job.id)
        handle = JobHandle[Any](self, first, Known.of(job, number) if first == job.id else None)
        handle.existed = first != job.id
        handle.warning = await self._unregistered(handler, tx)
        return handle

    async def _unregistered(self, handler: str, tx: Any) -> str | None:
        """Return a warning if neither this app nor any host has ever registered a handler."""
        if handler in self.registry.handlers or not self.connection.is_open:
            return None
        known = self._tools().known_handlers
        # A caller with a connection must not wait for a second one, nor be read with.
        return known.remembered(handler) if tx is not None else await known.warning(handler)

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
        rule = self._unique(handler, unique)
        common, ids = submission.checked(handler, **options), submission.new_ids(len(data))
        datas = [submission.encoded(one) for one in data]
        self.registry.check_each(handler, data, datas)
        tx = foreign.in_schema(tx, self._schema)
        await self._check_lane(common, tx)
        recur = await self._recurring(common, recurrence, timezone, tx)
        known = self.registry.handlers.get(handler)
        if recur or rule or (known and known.token and options.get("token") is None):
            jobs = [
                msgspec.structs.replace(common, id=id_, data=text)
                for id_, text in zip(ids, datas, strict=True)
            ]
            if options.get("token") is None:
                jobs = [await self._chained(job, one) for job, one in zip(jobs, data, strict=True)]
            jobs = [recur(job) for job in jobs] if recur else jobs
            if rule is not None:
                pairs = zip(jobs, data, strict=True)
                jobs = [await unique_submits.marked(job, rule, known, one) for job, one in pairs]
            batches = submission.batches(jobs)
        else:
            batches = submission.batches_alike(common, ids, datas)
        number, existing = None, dict[Any, Any]()
        if tx is not None:
            for arrays in batches:
                number, known_firsts = await self._store_in(tx, arrays, rule)
                existing |= known_firsts
        elif rule is not None:
            existing = await self._tools().unique.many(batches)
        elif batches:
            await self._tools().writing.many(batches)
        facts = Known.of(common, number)
        handles = [
            JobHandle[Any](self, existing.get(one, one), None if one in existing else facts)
            for one in ids
        ]
        for handle, one in zip(handles, ids, strict=True) if existing else ():
            handle.existed = one in existing
        if handles and (warning := await self._unregistered(handler, tx)):
            for handle in handles:
                handle.warning = warning
        return handles

    async def _chained(self, job: Submission, data: Any) -> Submission:
        """The job with the token that its handler gives it, if that is registered here."""
        known = self.registry.handlers.get(job.handler)
        if known is None or known.token is None:
            return job
        arguments = known.arguments(msgspec.to_builtins({} if data is None else data))
        token = await known.token_of(arguments)
        checking.text("token", token, TOKEN_LENGTH_MAX, of="a job")
        return msgspec.structs.replace(job, token=token or None)

    async def _check_lane(self, job: Submission, tx: Any) -> None:
        if job.lane is None:
            return
        known = self.registry.handlers.get(job.handler)
        if known is not None:
            submission.check_served(job.handler, job.lane, known.lane)
        # With the caller's transaction the app may be unconnected; the SQL function checks, too.
        if self.connection.is_open and (tx is None or await self._reads(tx)):
            unknown = None if known else job.handler
            await self._tools().writing.check_lane(job.lane, unknown, tx)

    def _unique(self, handler: str, given: Uniqueness | None) -> Unique | None:
        """Return whether jobs are unique, as the submit says or the handler that is known here."""
        if given is not None:
            return unique_of(f"a submit of {handler!r}", given)
        known = self.registry.handlers.get(handler)
        return None if known is None else known.unique

    async def _store_in(
        self, tx: Any, arrays: Sequence[Sequence[Any]], rule: Unique | None
    ) -> tuple[str, dict[UUID, UUID]]:
        """Store jobs in the caller's transaction; returns its numbers, and jobs that exist."""
        if rule is not None:
            return await unique_submits.store_in(tx, arrays, self._schema)
        return await submission.IN_TRANSACTION.call(tx, arrays, self._schema), {}

    @staticmethod
    async def _reads(tx: Any) -> bool:
        """Whether a connection of the caller can be asked as one of ours: a submitter's cannot."""
        if tx is None or foreign.driver_of(tx) != "asyncpg":
            return False
        return bool(await tx.fetchval(SQL.may_read))

    async def _recurring(
        self, job: Submission, recurrence: str | Recurrence | None, timezone: str | None, tx: Any
    ) -> Callable[[Submission], Submission] | None:
        """Return the function that makes a job the first of a series; None without a recurrence."""
        whole = submission.whole(recurrence, job.start, timezone)
        if whole is None:
            return None
        known = self.registry.handlers.get(job.handler)
        usual = known.operation_type if known else EXECUTE
        kind = (job.options or {}).get("operation_type") or usual
        now = await clock.now(tx if await self._reads(tx) else self.database)
        return await cpu.off_loop(submission.recurring, whole, now, kind)

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
        if command not in states.COMMANDS:
            raise InvalidValue(
                f"{command!r} is not a command; use one of {', '.join(states.COMMANDS)}",
                pointer="command",
            )
        if (until is None) == (command == "postpone"):
            raise InvalidValue(
                "until is required for postpone, and allowed only there", pointer="until"
            )
        until = None if until is None else checking.aware(until, "until")
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


class _Tools:
    """Carries out the calls of `Jobs` on one connection."""

    def __init__(self, database: Database, wakeups: Wakeups, settings: Settings) -> None:
        self.writing = Submitting(database, wakeups)
        self.unique = UniqueSubmits(database, wakeups)
        self.known_handlers = KnownHandlers(database)
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
        await self.writing.close()
        await self.unique.close()
        await self.commands.close()
        await self.waiting.close()
