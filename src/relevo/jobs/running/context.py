"""The context of a job's handler: data, progress, saved state, transactions."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from relevo.errors import Conflict
from relevo.jobs import parcels, states
from relevo.jobs.errors import JobCanceled, JobPaused
from relevo.jobs.running.claims import encoded_result
from relevo.kernel.postgres import catalog
from relevo.kernel.postgres.handler_transactions import HandlerTransactions, lent
from relevo.kernel.running.threads import entered, is_here, waited

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from uuid import UUID

    from relevo.jobs.running.claims import JobClaim
    from relevo.kernel.postgres import Database, Transaction
    from relevo.kernel.postgres.handler_transactions import HandlerTransaction
    from relevo.kernel.running.threads import Threads

T = TypeVar("T")
SQL = catalog.load("relevo.jobs")
_UNSAID: Final = object()
Checkpoint = tuple["JobClaim", float | None, str | None]
"""A claim, how much of its job is done (0 to 1), and the saved state as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Shared by all runs of a host."""

    host: UUID
    database: Database
    store: Callable[[Checkpoint], Awaitable[int]]
    """Stores a checkpoint, and returns the status of its job."""
    loop: asyncio.AbstractEventLoop
    threads: Threads
    """Where plain functions run."""
    service_for: Callable[[JobContext], Any] | None = None
    writing: set[str] = field(default_factory=set)
    """Lanes whose handlers write while they run: rows are cheaper for them than parcels."""


class JobContext:
    """A run of a job.

    >>> async def rebuild(ctx, shard: int) -> None:
    ...     for n, part in ctx.resume(enumerate(parts())):
    ...         await part.build()
    ...         await ctx.checkpoint(progress=n / total, state=n)
    """

    # Defaults are on the class, because most runs change none of them.
    asked: int = states.IN_PROGRESS
    """The status of the job, as far as this host knows: 21 to pause, 22 to cancel."""
    makes_room = False
    """Whether the handler is to make room for an urgent job."""
    gone = False
    """Whether the job was deleted, or is not this host's any more."""
    cut_for: BaseException | None = None
    """Why the host ends the run, apart from the job's status, such as a time limit."""
    settled = False
    """Whether its completion was committed in a transaction of the handler."""
    friendly: str | None = None
    """The message to users of a job that succeeds."""
    state: Any = None
    """The state that the last `checkpoint(state=…)` or `save` stored; None at first."""
    _service: Any = None
    _transactions: HandlerTransactions | None = None
    _fenced: tuple[Any, ...] = ()
    """Transactions that end with a fenced write."""

    def __init__(self, claim: JobClaim, workplace: Workplace, now: float) -> None:
        self._claim = claim
        self._at = workplace
        self.beaten_at = now
        """When it last reported: a lane may ask for a sign of life."""
        if claim.saved is not None:
            self.state = msgspec.json.decode(claim.saved)

    @property
    def service(self) -> Any:
        """Data operations through the event pipeline, in the name of the job's owner."""
        if self._service is None and self._at.service_for is not None:
            self._service = self._at.service_for(self)
        return self._service

    @service.setter
    def service(self, service: Any) -> None:
        self._service = service

    @property
    def refusal(self) -> Exception | None:
        """That an operation of the run was refused as too deep: then it failed, caught or not."""
        found: Exception | None = None if self._service is None else self._service.loop
        return found

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the run is at work."""
        return self._at.loop

    @property
    def threads(self) -> Threads:
        """Where plain functions run."""
        return self._at.threads

    @property
    def host(self) -> UUID:
        """The life of the host that runs it: with the claim's number, the fence of its writes."""
        return self._at.host

    @property
    def id(self) -> UUID:
        """The job's key."""
        return self._claim.id

    @property
    def claim(self) -> JobClaim:
        """The row as it was claimed."""
        return self._claim

    @property
    def name(self) -> str:
        """The job's display name."""
        return self._claim.name

    @property
    def attempt(self) -> int:
        """How often the job was started, this time included."""
        return self._claim.attempt

    @property
    def data(self) -> Any:
        """The submitted data."""
        return None if self._claim.data is None else msgspec.json.decode(self._claim.data)

    @property
    def details(self) -> dict[str, Any]:
        """The job's rare columns."""
        text = self._claim.details
        return {} if text is None else msgspec.json.decode(text)

    @property
    def owner(self) -> UUID | None:
        """In whose name the job acts."""
        return self._claim.owner

    @property
    def batch(self) -> UUID | None:
        """The batch of the job; its handler may submit more into it while that is open."""
        return self._claim.batch

    def check(self) -> None:
        """Raise `JobCanceled` or `JobPaused` if the handler is to stop; costs nothing."""
        if self.cut_for is not None:
            raise self.cut_for
        if self.gone or self.asked == states.CANCELING:
            raise JobCanceled(f"job {self.id} was canceled")
        if self.asked == states.PAUSING:
            raise JobPaused(f"job {self.id} was paused")
        if self.makes_room:
            raise JobPaused(f"job {self.id} makes room for a more urgent one")

    async def checkpoint(self, *, progress: float | None = None, state: Any = _UNSAID) -> None:
        """Store how far the work is; then raise if the handler is to stop.

        That is so if the job was paused or canceled, or is to make room for an urgent one. The
        stored state is `ctx.state` when the handler is called again after a pause, a retry or a
        crash.
        """
        self._writes()
        saved = None if state is _UNSAID else msgspec.json.encode(state).decode()
        self.beaten_at = time.monotonic()
        status = await self._at.store((self._claim, progress, saved))
        if status < 0:
            self.gone = True
        else:
            self.asked = max(self.asked, status) if self.asked == states.CANCELING else status
        if state is not _UNSAID:
            self.state = state
        self.check()

    async def checkpoint_in(
        self, tx: Transaction, *, progress: float | None = None, state: Any = _UNSAID
    ) -> None:
        """Store how far the work is, together with the other writes of the transaction.

        Raises `JobCanceled` if the job was canceled or is not this host's any more; let it roll the
        transaction back. A pause is obeyed after the commit, by `check()`.
        """
        self._writes()
        saved = None if state is _UNSAID else msgspec.json.encode(state).decode()
        rows = await tx.fetch(
            SQL.checkpoints, self._at.host, [self.id], [self._claim.number], [progress], [saved]
        )
        self.gone = self.gone or not rows or rows[0]["deleted"]
        if rows:
            self.asked = rows[0]["status"]
        if self.gone or self.asked == states.CANCELING:
            raise JobCanceled(f"job {self.id} was canceled; nothing of this step was committed")
        self.beaten_at = time.monotonic()
        if state is not _UNSAID:
            self.state = state

    @contextmanager
    def fenced_at_end(self, tx: Transaction | HandlerTransaction) -> Iterator[None]:
        """Say that a transaction ends with a fenced write of this run.

        Writes inside it need no fence of their own.
        """
        self._fenced = (*self._fenced, tx)
        try:
            yield
        finally:
            self._fenced = tuple(one for one in self._fenced if one is not tx)

    def is_fenced(self, tx: Any) -> bool:
        """Whether a transaction ends with a fenced write of this run anyway."""
        return any(one is tx for one in self._fenced)

    async def hold(self, tx: Transaction) -> None:
        """Keep the job this host's until the transaction ends; the last thing done in it.

        Raises `JobCanceled` if the job was canceled or is another's by now; let it roll the
        transaction back. Otherwise the row is locked, so that no other host takes the job and runs
        it again before the transaction has ended. The lock lasts
        while the process is awake: the server ends a transaction that is idle for 5 s.
        """
        self._writes()
        fence = (self.id, self._at.host, self._claim.number)
        row = await tx.fetchrow(SQL.hold_job, *fence)
        if row is None and await parcels.unpack(tx, [self.id]):
            row = await tx.fetchrow(SQL.hold_job, *fence)
        if row is None:
            self.gone = True
        elif row["status"] == states.CANCELING:
            self.asked = states.CANCELING
        if self.gone or self.asked == states.CANCELING:
            raise JobCanceled(f"job {self.id} was canceled; nothing of this was committed")

    async def write(self, sql: str, *args: Any) -> None:
        """Run a statement in a transaction of its own, if the job is still this host's."""
        async with self._at.database.transaction() as tx:
            await tx.execute(sql, *args)
            await self.hold(tx)

    async def suspend_in(
        self, tx: Transaction, *, until: datetime | None = None, event: bool = True
    ) -> None:
        """Let the job wait, for an event or until an instant, if the transaction commits.

        It is the last thing a run does; set `settled` after the commit.
        """
        spent = time.monotonic() - self._claim.taken_at
        rows = await tx.fetch(SQL.suspend, self.id, self._at.host, self._claim.number, until, spent)
        if not rows:
            self.gone = True
            raise JobCanceled(
                f"job {self.id} is no longer held by this host; nothing was committed"
            )
        if not event:
            await tx.execute(SQL.wait_for_time, self.id)

    async def save(self, state: Any) -> None:
        """Store state to resume from, as `checkpoint(state=…)`."""
        await self.checkpoint(state=state)

    async def progress(self, done: float) -> None:
        """Report how much is done, 0 to 1."""
        await self.checkpoint(progress=done)

    def resume(self, parts: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Return numbered parts after the one whose number `ctx.state` holds, or all."""
        last = self.state if isinstance(self.state, int) else None
        return ((n, part) for n, part in parts if last is None or n > last)

    def transaction(self, *, result: Any = None) -> AbstractAsyncContextManager[Transaction]:
        """Give a transaction whose commit completes the job: effects and completion, or neither.

        Operations of `ctx.service` inside of it belong to it. It is the last thing a handler does,
        and its block alone begins and ends it: one that is left open is rolled back, and the job
        has failed. If the job was canceled meanwhile, `JobCanceled` is raised and nothing is
        committed.
        """
        if self._transactions is None:
            self._transactions = HandlerTransactions()
        return self._transactions.block(self._begin(result))

    @property
    def has_transactions(self) -> bool:
        """Whether the handler has begun any, which may be open."""
        return self._transactions is not None

    async def end_call(self) -> None:
        """Roll back a transaction that the handler left open; raises `HandlerError` then."""
        if self._transactions is not None:
            await self._transactions.end()

    @asynccontextmanager
    async def _begin(self, result: Any) -> AsyncIterator[HandlerTransaction]:
        if self.settled:
            raise Conflict(
                f"job {self.id} was already completed by an earlier transaction of its handler"
            )
        self.check()
        self._writes()
        async with self._at.database.transaction() as connection:
            async with lent(connection) as tx:
                with (
                    self.fenced_at_end(tx),
                    nullcontext() if self.service is None else self.service.joined(tx),
                ):
                    yield tx
            if self.refusal is not None:
                raise self.refusal
            await self._complete(connection, encoded_result(result))
        self.settled = True

    def _writes(self) -> None:
        """Note that the handler writes while it runs: jobs of its lane are claimed as rows then."""
        self._at.writing.add(self._claim.lane)

    async def _complete(self, tx: Transaction, result: str | None) -> None:
        claim, spent = self._claim, time.monotonic() - self._claim.taken_at
        # Its gates are noted, not locked: the transaction may hold locks that come after gates.
        rows = await tx.fetch(
            SQL.settle, [claim.id], ["done"], self._at.host, [claim.number], [result], [spent], []
        )
        if not rows:
            self.gone = True
            raise JobCanceled(
                f"job {self.id} is no longer held by this host; nothing was committed"
            )
        if rows[0]["after"] != states.SUCCEEDED:
            self.gone = rows[0]["after"] == states.REMOVED
            self.asked = states.CANCELING
            raise JobCanceled(f"job {self.id} was canceled; nothing was committed")


class BlockingContext:
    """The context of a plain function, which runs in a thread: the same names, without `await`.

    A coroutine that such a function returns runs in the event loop; there it is the context itself.
    """

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        """Everything that does not wait is that of the context itself."""
        return getattr(self._ctx, name)

    @property
    def service(self) -> Any:
        """As `JobContext.service`; every call waits until it is done."""
        service = self._ctx.service
        return service if is_here(self._ctx.loop) else service.blocking(self._ctx.loop)

    def transaction(self, *, result: Any = None) -> Any:
        """As `JobContext.transaction`, entered by a plain `with`."""
        manager = self._ctx.transaction(result=result)
        return manager if is_here(self._ctx.loop) else entered(manager, self._ctx.loop)

    def checkpoint(self, **options: Any) -> Any:
        """As `JobContext.checkpoint`."""
        return self._done(self._ctx.checkpoint(**options))

    def save(self, state: Any) -> Any:
        """As `JobContext.save`."""
        return self._done(self._ctx.save(state))

    def progress(self, done: float) -> Any:
        """As `JobContext.progress`."""
        return self._done(self._ctx.progress(done))

    def _done(self, work: Coroutine[Any, Any, None]) -> Any:
        return work if is_here(self._ctx.loop) else waited(work, self._ctx.loop)
