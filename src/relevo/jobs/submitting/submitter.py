"""Submits of `app.jobs`: what the caller says, what the handler declares, then the storing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from relevo.jobs.batches.model import naming_refusals
from relevo.jobs.core import reasons
from relevo.jobs.core.uniqueness import Uniqueness, unique_of
from relevo.jobs.handles import JobHandle, Known
from relevo.jobs.model import TOKEN_LENGTH_MAX, Recurrence
from relevo.jobs.registry import EXECUTE
from relevo.jobs.submitting import submission, unique_submits
from relevo.jobs.submitting.submission import Submitting
from relevo.jobs.submitting.unique_submits import UniqueSubmits
from relevo.kernel import checking, cpu
from relevo.kernel.postgres import catalog, clock, foreign
from relevo.kernel.telemetry import tracing
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from relevo.jobs.core.uniqueness import Unique
    from relevo.jobs.model import Submission
    from relevo.jobs.service import Jobs
    from relevo.kernel.postgres import Database, Wakeups

SQL = catalog.load("relevo.jobs")
ASKED_AGAIN_SECONDS: Final = 5.0
"""How long a handler counts as never registered before the database is asked again."""
UNKNOWN_MAX: Final = 1_000
log = get_logger(__name__)


class SubmitTools:
    """What submits need of one connection."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self.writing = Submitting(database, wakeups)
        self.unique = UniqueSubmits(database, wakeups)
        self.known_handlers = KnownHandlers(database)

    async def close(self) -> None:
        """Finish accepted submits."""
        await self.writing.close()
        await self.unique.close()


class SubmitTerms(Struct, frozen=True, kw_only=True):
    """What a submit says beside the fields of its jobs."""

    tx: Any = None
    unique: Uniqueness | None = None
    recurrence: str | Recurrence | None = None
    timezone: str | None = None
    own_token: bool = False
    """Whether it names a token; an empty one keeps the handler from giving one."""


class Submitter:
    """Submits jobs for an app."""

    def __init__(self, jobs: Jobs, tools: Callable[[], SubmitTools], schema: str) -> None:
        self._jobs = jobs
        self._tools = tools
        self._schema = schema

    async def one(self, job: Submission, data: Any, terms: SubmitTerms) -> JobHandle[Any]:
        """Submit a job; returns its handle, or that of the job that has its unique key."""
        with tracing.sending("submit", job.handler) as span:
            handle = await self._one(submission.in_trace(job), data, terms)
            if span is not None:
                span.set_attribute("messaging.message.id", str(handle.id))
            return handle

    async def _one(self, job: Submission, data: Any, terms: SubmitTerms) -> JobHandle[Any]:
        registry = self._jobs.registry
        registry.check_data(job.handler, data, job.data)
        tx = None if terms.tx is None else foreign.in_schema(terms.tx, self._schema)
        if not terms.own_token:
            job = await self._chained(job, data)
        await self._check_lane(job, tx)
        recur = await self._recurring(job, terms, tx)
        if recur is not None:
            job = recur(job)
        if (rule := self._unique(job.handler, terms.unique)) is not None:
            known = registry.handlers.get(job.handler)
            job = await unique_submits.marked(job, rule, known, data)
        number, first = None, job.id
        batched = "batch" in (job.options or {})  # a closed batch must not spoil a group
        if tx is not None or batched:
            number, existing = await self._store_all([submission.columns([job])], rule, tx)
            first = existing.get(job.id, job.id)
        elif rule is None:
            await self._tools().writing.one(job)
        else:
            first = await self._tools().unique.one(job)
        known_facts = Known.of(job, number) if first == job.id else None
        handle = JobHandle[Any](self._jobs, first, known_facts)
        handle.existed = first != job.id
        handle.warning = await self._unregistered(job.handler, tx)
        return handle

    async def many(
        self, common: Submission, data: Sequence[Any], terms: SubmitTerms
    ) -> list[JobHandle[Any]]:
        """Submit a job for each element of `data`, in one transaction."""
        with tracing.sending("submit", common.handler, len(data)):
            return await self._many(submission.in_trace(common), data, terms)

    async def _many(
        self, common: Submission, data: Sequence[Any], terms: SubmitTerms
    ) -> list[JobHandle[Any]]:
        ids, datas = submission.new_ids(len(data)), [submission.encoded(each) for each in data]
        self._jobs.registry.check_each(common.handler, data, datas)
        tx = foreign.in_schema(terms.tx, self._schema)
        rule = self._unique(common.handler, terms.unique)
        await self._check_lane(common, tx)
        recur = await self._recurring(common, terms, tx)
        known = self._jobs.registry.handlers.get(common.handler)
        if recur or rule or (known and known.token and not terms.own_token):
            jobs = [
                msgspec.structs.replace(common, id=id_, data=text)
                for id_, text in zip(ids, datas, strict=True)
            ]
            if not terms.own_token:
                pairs = zip(jobs, data, strict=True)
                jobs = [await self._chained(job, each) for job, each in pairs]
            jobs = [recur(job) for job in jobs] if recur else jobs
            if rule is not None:
                pairs = zip(jobs, data, strict=True)
                jobs = [await unique_submits.marked(job, rule, known, each) for job, each in pairs]
            batches = submission.batches(jobs)
        else:
            batches = submission.batches_alike(common, ids, datas)
        number, existing = await self._store_all(batches, rule, tx)
        return await self._handles(ids, existing, Known.of(common, number), tx)

    async def _store_all(
        self, batches: Sequence[Sequence[Sequence[Any]]], rule: Unique | None, tx: Any
    ) -> tuple[str | None, dict[UUID, UUID]]:
        """Store jobs; returns the numbers of the caller's transaction, and jobs that exist."""
        number, existing = None, dict[Any, Any]()
        with naming_refusals():
            if tx is not None:
                for arrays in batches:
                    number, firsts = await self._store_in(tx, arrays, rule)
                    existing |= firsts
            elif rule is not None:
                existing = await self._tools().unique.many(batches)
            elif batches:
                await self._tools().writing.many(batches)
        return number, existing

    async def _handles(
        self, ids: Sequence[UUID], existing: dict[UUID, UUID], facts: Known, tx: Any
    ) -> list[JobHandle[Any]]:
        handles = [
            JobHandle[Any](self._jobs, existing.get(id_, id_), None if id_ in existing else facts)
            for id_ in ids
        ]
        for handle, id_ in zip(handles, ids, strict=True) if existing else ():
            handle.existed = id_ in existing
        if handles and (warning := await self._unregistered(facts.handler, tx)):
            for handle in handles:
                handle.warning = warning
        return handles

    async def _unregistered(self, handler: str | None, tx: Any) -> str | None:
        """Return a warning if neither this app nor any host has ever registered a handler."""
        if handler is None or handler in self._jobs.registry.handlers:
            return None
        if not self._jobs.connection.is_open:
            return None
        known = self._tools().known_handlers
        # A caller with a connection must not wait for a second one, nor be read with.
        return known.remembered(handler) if tx is not None else await known.warning(handler)

    async def _chained(self, job: Submission, data: Any) -> Submission:
        """The job with the token that its handler gives it, if that is registered here."""
        known = self._jobs.registry.handlers.get(job.handler)
        if known is None or known.token is None:
            return job
        arguments = known.arguments(msgspec.to_builtins({} if data is None else data))
        token = await known.token_of(arguments)
        checking.text("token", token, TOKEN_LENGTH_MAX, of="a job")
        return msgspec.structs.replace(job, token=token or None)

    async def _check_lane(self, job: Submission, tx: Any) -> None:
        if job.lane is None:
            return
        known = self._jobs.registry.handlers.get(job.handler)
        if known is not None:
            submission.check_served(job.handler, job.lane, known.lane)
        # With the caller's transaction the app may be unconnected; the SQL function checks, too.
        if self._jobs.connection.is_open and (tx is None or await self._reads(tx)):
            unknown = None if known else job.handler
            await self._tools().writing.check_lane(job.lane, unknown, tx)

    def _unique(self, handler: str, given: Uniqueness | None) -> Unique | None:
        """Return whether jobs are unique, as the submit says or the handler that is known here."""
        if given is not None:
            return unique_of(f"a submit of {handler!r}", given)
        known = self._jobs.registry.handlers.get(handler)
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
        self, job: Submission, terms: SubmitTerms, tx: Any
    ) -> Callable[[Submission], Submission] | None:
        """Return the function that makes a job the first of a series; None without a recurrence."""
        whole = submission.whole(terms.recurrence, job.start, terms.timezone)
        if whole is None:
            return None
        known = self._jobs.registry.handlers.get(job.handler)
        usual = known.operation_type if known else EXECUTE
        kind = (job.options or {}).get("operation_type") or usual
        now = await clock.now(tx if await self._reads(tx) else self._jobs.database)
        return await cpu.off_loop(submission.recurring, whole, now, kind)


class KnownHandlers:
    """Remembers the handlers that hosts have had; they never become unknown again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._unknown: dict[str, tuple[float, str]] = {}

    def remembered(self, handler: str) -> str | None:
        """Return the warning of an earlier submit; asks nothing."""
        return self._unknown[handler][1] if handler in self._unknown else None

    async def warning(self, handler: str) -> str | None:
        """Return a warning if no host has ever registered a handler; logs the first of each."""
        if handler in self._known:
            return None
        asked_at, text = self._unknown.get(handler, (-ASKED_AGAIN_SECONDS, ""))
        now = time.monotonic()
        if now - asked_at < ASKED_AGAIN_SECONDS:
            return text
        rows = await self._database.fetch(SQL.handler_names, handler)
        names = [row["name"] for row in rows]
        if handler in names:
            self._known.add(handler)
            self._unknown.pop(handler, None)
            return None
        if not text:
            text = reasons.never_registered(handler, names)
            log.warning("jobs.handler_never_registered", handler=handler[:100], says=text)
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[handler] = (now, text)
        return text
