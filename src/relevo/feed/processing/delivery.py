"""One lane of a lease: hands its batches to the handler, one after the other.

A batch that fails puts its lane in trouble (`isolation.py`) until its end; then a step tries the
part of it that is next. Dead-lettering and moving past it are one statement.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from relevo.errors import HandlerError, HostFenced, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.feed.operating import dead_letters
from relevo.feed.processing.calls import Watch, call, documents
from relevo.feed.processing.context import Context, Diagnostics
from relevo.feed.processing.health import Stall
from relevo.feed.processing.journal import Cause
from relevo.feed.processing.standing import LAG_SECONDS
from relevo.kernel import error_text, faults
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned, Limits
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend, verdict_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.feed.model import Change
    from relevo.feed.processing.ledger import Run
    from relevo.feed.processing.standing import Moved
    from relevo.feed.processing.worker import Worker
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.feed")
log = structlog.get_logger(__name__)
CRASHES_BURY = 3
"""Unclean losses, after which the change that was in flight is dead-lettered."""
CRASHES_BLOCK = 5
"""Unclean losses, after which the lease is blocked if there are no dead letters."""


class Lane:
    """Delivers the changes of one lane, in order, at least once."""

    def __init__(self, worker: Worker, index: int) -> None:
        self._worker = worker
        self._processor = worker.processor
        self._lease = worker.lease
        self._standing = worker.standing
        self._index = index
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._again = False
        """Whether what is delivered next was delivered before, and may have changed since."""
        self._postponements = 0
        """How often in a row the handler has asked for the same later."""
        self.busy = False

    async def run(self) -> None:
        """Work until there is nothing to come any more, or the lease must be let go."""
        worker, standing = self._worker, self._standing
        while not worker.over:
            if self._lease.stopping.is_set():
                await worker.pulse.wait()  # until the period ends, or the request is withdrawn
                continue
            self._lease.check()
            if worker.draining or self._too_many_unconfirmed():
                await worker.pulse.wait()  # deliver no further, for now
            elif self._index in standing.troubles:
                await self._isolate()
            elif run := standing.lanes.take(self._index):
                await self._deliver(run)
            else:
                await worker.pulse.wait()

    def _too_many_unconfirmed(self) -> bool:
        processor = self._processor
        return (
            processor.checkpoint == "manual"
            and self._standing.ledger.unconfirmed >= processor.max_unconfirmed
        )

    async def _isolate(self) -> None:
        """Deliver the next part of a batch in trouble."""
        standing = self._standing
        trouble = standing.troubles[self._index]
        if trouble.closely and standing.ledger.unconfirmed_in(self._index):
            await self._worker.pulse.wait()
            return
        range_id = min(trouble.until)
        until = trouble.until[range_id]
        run = standing.lanes.take_until(self._index, range_id, until)
        if run is not None and self._again:
            run = await self._worker.recheck(run)
            if not self._worker.working:
                standing.lanes.put_back(run)
                return
        if run is None:
            if standing.ledger.read[range_id] >= until:
                await standing.leave(self._index, range_id)
                self._worker.progressed()
            else:
                await self._worker.pulse.wait()  # until it is read
            return
        units = standing.units(run.changes)
        size = standing.size_of(run.changes, trouble.part(units))
        run, rest = standing.ledger.cut(run, size)
        standing.lanes.put_back(rest)
        run.pinned = True
        if not trouble.singles:
            await self._deliver(run)
        elif trouble.suspect == units[0] and standing.crashes >= CRASHES_BURY:
            await self._give_up_on(run)
        else:
            await self._deliver_marked(run)

    async def _deliver_marked(self, run: Run) -> None:
        """Deliver one change so that a crash tells which it was: one at a time in a process."""
        async with self._processor.one_by_one:
            if not self._worker.working:
                self._standing.lanes.put_back(run)
                return
            await self._standing.mark(self._index, self._standing.units(run.changes)[0])
            await self._deliver(run)

    async def _give_up_on(self, run: Run) -> None:
        """A change has killed its process too often."""
        crashes = self._standing.crashes
        if self._processor.limit is not None:
            text = f"the process ended {crashes} times while this change was delivered"
            cause = Cause(reason="crash", error_type="Crash", message=text, attempts=crashes)
            await self._bury(run, cause)
        elif crashes < CRASHES_BLOCK:
            await self._deliver_marked(run)
        else:
            await self._standing.journal.block()
            self._end_blocked(f"blocked after {crashes} crashes at one change")
        self._worker.progressed()

    async def _deliver(self, run: Run) -> None:
        """Call the handler once."""
        self._lease.check()
        run.out = self.busy = True
        self._worker.room.beat()  # for what is to be read meanwhile
        ctx = self._context(run)
        try:
            changes: list[Any] = await self._processor.admit(self._lease, run.changes)
            await faults.point("before_delegate")
            self._lease.check()  # again, for that took its time
            if not changes:  # all of them wait behind dead letters
                await ctx.confirm()
            else:
                await self._call(run, ctx, changes)
        except (LeaseLost, HostFenced, LeaseStoreError, CallAbandoned):
            raise
        except Exception as error:
            if ctx.in_doubt or isinstance(error, OutcomeUnknown):
                raise LeaseStoreError(f"it is not known what was stored: {error}") from error
            await self._ended(run, ctx, error)
        else:
            await faults.point("after_delegate")
            await self._returned(run, ctx)
        finally:
            self.busy = False
            self._worker.progressed()

    async def _call(self, run: Run, ctx: Context, changes: list[Any]) -> None:
        if self._processor.raw:
            changes = documents(changes, self._processor.mode)
        manual = self._processor.checkpoint == "manual"
        try:
            await call(self._processor.handler, ctx, changes, self._watch(run))
        except BaseException:
            with suppress(HandlerError):  # what the handler raised is told instead
                await ctx.end_call()
            raise
        finally:
            self._processor.symptoms.clear(self._lease.name, "stalled", lane=self._index)
        await ctx.end_call(for_good=not manual)

    async def _returned(self, run: Run, ctx: Context) -> None:
        """The handler took what it was given; where it confirms itself, that may come later."""
        standing = self._standing
        trouble = standing.troubles.get(self._index) if run.pinned else None
        if not ctx.confirmed and self._processor.checkpoint == "auto":
            await faults.point("before_checkpoint")
            standing.finish(run)
            standing.calls_unstored += 1
            if trouble is not None or self._worker.is_due():
                await standing.flush(relaxed=trouble is None)
            await faults.point("after_checkpoint_commit")
        elif not ctx.confirmed and trouble is not None:
            if trouble.closely:
                text = "the handler returned without confirming a part of a batch that failed"
                await self._failed(run, ctx, HandlerError(text))
                return
            standing.forgive(self._index)
        elif ctx.confirmed and instant() - standing.stored_at > LAG_SECONDS:
            await standing.flush()  # the position follows what transactions have finished
        self._again, self._postponements = False, 0
        self._processor.symptoms.clear(self._lease.name, "failing", lane=self._index)

    def _watch(self, run: Run) -> Watch:
        processor, token = self._processor, self._lease.name

        async def stalled() -> None:
            details = Stall(
                seconds=processor.stall_after or 0.0, first=run.changes[0].change_id,
                changes=len(run.changes),
            )  # fmt: skip
            text = f"a call with {details.changes} changes runs for over {details.seconds} s"
            processor.symptoms.note("stalled", token, text, self._index)
            log.warning("feed.stalled", processor=processor.name, lease=token, first=details.first)
            await processor.tell("stalled", token, details)

        return Watch(
            limits=Limits(
                stall_after=processor.stall_after, time_limit=processor.delegate_timeout
            ),
            on_stall=stalled, with_context=processor.with_context,
            observer=processor.observer(self._lease, run.changes),
        )  # fmt: skip

    def _context(self, run: Run) -> Context:
        standing, worker = self._standing, self._worker
        moved: Moved | None = None

        async def confirm(change: Change[Any] | None) -> bool:
            await faults.point("before_checkpoint")
            whole = standing.finish(run, change)
            await standing.flush()
            worker.progressed()
            await faults.point("after_checkpoint_commit")
            return whole

        async def confirm_in(tx: Transaction) -> None:
            nonlocal moved
            await tx.execute(SQL.stay_awake)
            moved = await standing.confirm_in(tx, run)

        def committed() -> None:
            standing.committed(run, moved)
            worker.progressed()

        def undone(in_doubt: bool) -> None:
            nonlocal moved
            moved, before = None, moved
            standing.undone(before, in_doubt=in_doubt)

        trouble = standing.troubles.get(self._index)
        attempt = 1 + (trouble.attempts if trouble else 0)
        diagnostics = Diagnostics(
            read_seconds=run.read_for, wait_seconds=instant() - run.read_at,
            rows=len(run.changes), range_ids=(run.range_id,), attempts=attempt,
        )  # fmt: skip
        return Context(
            self._lease, standing.interval, attempt, confirm=confirm,
            open_transaction=worker.database.transaction, confirm_in=confirm_in,
            committed=committed, undone=undone, diagnostics=diagnostics,
            headers=lambda: self._headers(run),
        )  # fmt: skip

    def _headers(self, run: Run) -> Mapping[str, Any]:
        return {
            "continuation": self._worker.continuation(run),
            "lsn": run.end,
            "item_count": len(run.changes),
            "request_charge": 0,
        }

    async def _ended(self, run: Run, ctx: Context, error: Exception) -> None:
        """Do what the handler asks for by what it raised; without a verdict it has failed."""
        match verdict_in(error):
            case RetryLater() as verdict:
                await self._postponed(run, ctx, verdict.delay)
            case Suspend() as verdict:
                await self._suspended(run, ctx, verdict.text)
            case _:
                await self._failed(run, ctx, error)

    async def _suspended(self, run: Run, ctx: Context, reason: str) -> None:
        """The handler wants somebody to repair something: block the lease until it is resumed."""
        if not ctx.confirmed:
            self._standing.lanes.put_back(run)
        await self._standing.flush()
        await self._standing.journal.block()
        log.warning(
            "feed.suspended", processor=self._processor.name, lease=self._lease.name, reason=reason
        )
        self._end_blocked(f"suspended by the handler: {reason}")

    async def _postponed(self, run: Run, ctx: Context, seconds: float | None) -> None:
        """The handler asks for the same later: nothing is counted, nobody is told."""
        if ctx.confirmed:
            return
        standing = self._standing
        standing.postpone(run)
        standing.lanes.put_back(run)
        self._again = True
        if standing.troubles[self._index].marked is not None:
            await standing.mark(self._index, None)  # while nothing runs, nothing is suspected
        if seconds is None:
            seconds = self._processor.backoff.delay(self._postponements, self._random)
        self._postponements += 1
        await self._worker.pause(seconds)

    async def _failed(self, run: Run, ctx: Context, error: Exception) -> None:
        """Count the failure with the lease, so that the next owner goes on counting; then wait."""
        await self._tell_failure(run, ctx, error)
        if ctx.confirmed:
            return  # what it did counts; there is nothing to repeat
        limit = self._processor.limit
        if limit is not None and isinstance(verdict_in(error), Fail):
            limit = 1  # no other attempt: a batch is halved at once, a single change given up
        trouble = await self._standing.fail(run, error, limit)
        if trouble.condemned(limit):
            await self._bury(run, Cause.of(error, trouble.failures))
            return
        self._standing.lanes.put_back(run)
        self._again = True
        nth = (trouble.failures or 1) if trouble.closely else trouble.attempts
        await self._worker.pause(self._processor.backoff.delay(nth - 1, self._random))

    async def _tell_failure(self, run: Run, ctx: Context, error: Exception) -> None:
        name, token, shown = self._processor.name, self._lease.name, error_text.shown(error)
        if isinstance(error, HandlerError):
            told = error
            told.context = ctx
        else:
            told = HandlerError(f"handler of {name!r} raised {shown}", context=ctx)
            told.__cause__ = error
        log.warning(
            "feed.handler_failed", processor=name, lease=token, attempt=ctx.attempt,
            error=shown,
        )  # fmt: skip
        where = f"item {run.changes[0].id!r} of key {run.changes[0].key}"
        text = f"attempt {ctx.attempt} failed at {where}: {shown}"
        self._processor.symptoms.note("failing", token, text, self._index)
        await self._processor.tell("error", token, told)

    async def _bury(self, run: Run, cause: Cause) -> None:
        """Dead-letter the only change or group of a run, and go on behind it, or halt."""
        processor, token = self._processor, self._lease.name
        halt = processor.on_poison == "halt"
        rows = await self._standing.bury(run, cause, processor.handler_name, block=halt)
        processor.symptoms.clear(token, "failing", lane=self._index)
        letters = [dead_letters.read(row) for row in rows]
        for letter in letters:
            log.error(
                "feed.dead_lettered", processor=processor.name, lease=token, letter=letter.id,
                lsn=letter.lsn, reason=cause.reason, error=cause.message,
            )  # fmt: skip
        if halt:
            self._end_blocked(f"halted at dead letter {letters[0].id}")
        for letter in letters:
            await processor.tell("dead_lettered", token, letter)

    def _end_blocked(self, text: str) -> None:
        self._processor.symptoms.note("blocked", self._lease.name, text)
        self._lease.ask_to_stop("blocked")
