"""One lane of a lease: hands its batches to the handler, one after the other.

After a failure the lane isolates the bad change (`isolation.py`): it tries parts of the batch, step
by step, until the end of that batch. Dead-lettering and moving past a change are one statement.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relevo.errors import HandlerError, HostFenced, LeaseLost, LeaseStoreError, OutcomeUnknown
from relevo.feed.operating import dead_letters
from relevo.feed.processing.calls import CallWatch, call, documents
from relevo.feed.processing.context import ChangeContext, Diagnostics
from relevo.feed.processing.journal import FailureCause
from relevo.feed.processing.processor import Stall
from relevo.feed.processing.progress import LAG_SECONDS
from relevo.kernel import error_text, faults
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned, Limits
from relevo.kernel.running.verdicts import Fail, RetryLater, Suspend, verdict_in
from relevo.kernel.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.feed.model import Change
    from relevo.feed.processing.ledger import ChangeRun
    from relevo.feed.processing.progress import Moved
    from relevo.feed.processing.worker import LeaseWorker
    from relevo.kernel.postgres import Transaction

SQL = catalog.load("relevo.feed")
log = get_logger(__name__)
CRASHES_BURY = 3
"""Crashes after which the change in flight becomes a dead letter."""
CRASHES_BLOCK = 5
"""Crashes after which the lease is blocked if dead letters are off."""


class DeliveryLane:
    """Delivers the changes of one lane, in order, at least once."""

    def __init__(self, worker: LeaseWorker, index: int) -> None:
        self._worker = worker
        self._processor = worker.processor
        self._lease = worker.lease
        self._progress = worker.progress
        self._index = index
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._again = False
        """Whether the next changes were delivered before, and may have changed since."""
        self._postponements = 0
        """How often in a row the handler raised `RetryLater`."""
        self.busy = False

    async def run(self) -> None:
        """Work until the period ends or the lease must be released."""
        worker, progress = self._worker, self._progress
        while not worker.over:
            if self._lease.stopping.is_set():
                await (
                    worker.work_changed.wait()
                )  # until the period ends, or the request is withdrawn
                continue
            self._lease.check()
            if worker.draining or self._too_many_unconfirmed():
                await worker.work_changed.wait()  # deliver no further, for now
            elif self._index in progress.troubles:
                await self._isolate()
            elif run := progress.lanes.take(self._index):
                await self._deliver(run)
            else:
                await worker.work_changed.wait()

    def _too_many_unconfirmed(self) -> bool:
        settings = self._processor.settings
        return (
            settings.checkpoint == "manual"
            and self._progress.ledger.unconfirmed >= settings.max_unconfirmed
        )

    async def _isolate(self) -> None:
        """Deliver the next part of a batch in trouble."""
        progress = self._progress
        trouble = progress.troubles[self._index]
        if trouble.closely and progress.ledger.unconfirmed_in(self._index):
            await self._worker.work_changed.wait()
            return
        range_id = min(trouble.until)
        until = trouble.until[range_id]
        run = progress.lanes.take_until(self._index, range_id, until)
        if run is not None and self._again:
            run = await self._worker.recheck(run)
            if not self._worker.working:
                progress.lanes.put_back(run)
                return
        if run is None:
            if progress.ledger.read[range_id] >= until:
                await progress.leave(self._index, range_id)
                self._worker.progressed()
            else:
                await self._worker.work_changed.wait()  # until it is read
            return
        units = progress.units(run.changes)
        size = progress.size_of(run.changes, trouble.part(units))
        run, rest = progress.ledger.cut(run, size)
        progress.lanes.put_back(rest)
        run.pinned = True
        if not trouble.singles:
            await self._deliver(run)
        elif trouble.suspect == units[0] and progress.crashes >= CRASHES_BURY:
            await self._give_up_on(run)
        else:
            await self._deliver_marked(run)

    async def _deliver_marked(self, run: ChangeRun) -> None:
        """Deliver one change, marked and alone in the process, so that a crash identifies it."""
        async with self._processor.one_by_one:
            if not self._worker.working:
                self._progress.lanes.put_back(run)
                return
            await self._progress.mark(self._index, self._progress.units(run.changes)[0])
            await self._deliver(run)

    async def _give_up_on(self, run: ChangeRun) -> None:
        """Give up on a change that has killed its process too often."""
        crashes = self._progress.crashes
        if self._processor.limit is not None:
            text = f"the process ended {crashes} times while this change was delivered"
            cause = FailureCause(reason="crash", error_type="Crash", message=text, attempts=crashes)
            await self._bury(run, cause)
        elif crashes < CRASHES_BLOCK:
            await self._deliver_marked(run)
        else:
            await self._progress.journal.block()
            self._end_blocked(f"blocked after {crashes} crashes at one change")
        self._worker.progressed()

    async def _deliver(self, run: ChangeRun) -> None:
        """Call the handler once."""
        self._lease.check()
        run.out = self.busy = True
        self._worker.room_changed.send()  # so that reading goes on meanwhile
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
                raise LeaseStoreError(f"the outcome of a write is unknown: {error}") from error
            await self._ended(run, ctx, error)
        else:
            await faults.point("after_delegate")
            await self._returned(run, ctx)
        finally:
            self.busy = False
            self._worker.progressed()

    async def _call(self, run: ChangeRun, ctx: ChangeContext, changes: list[Any]) -> None:
        settings = self._processor.settings
        if settings.raw:
            changes = documents(changes, settings.mode)
        manual = settings.checkpoint == "manual"
        try:
            await call(self._processor.handler, ctx, changes, self._watch(run))
        except BaseException:
            with suppress(HandlerError):  # the handler's own error is reported
                await ctx.end_call()
            raise
        finally:
            self._processor.symptoms.clear(self._lease.name, "stalled", lane=self._index)
        await ctx.end_call(for_good=not manual)

    async def _returned(self, run: ChangeRun, ctx: ChangeContext) -> None:
        """The handler returned; with manual confirmation its changes may be confirmed later."""
        progress = self._progress
        trouble = progress.troubles.get(self._index) if run.pinned else None
        if not ctx.confirmed and self._processor.settings.checkpoint == "auto":
            await faults.point("before_checkpoint")
            progress.finish(run)
            progress.calls_unstored += 1
            if trouble is not None or self._worker.is_due():
                await progress.flush(relaxed=trouble is None)
            await faults.point("after_checkpoint_commit")
        elif not ctx.confirmed and trouble is not None:
            if trouble.closely:
                text = "the handler returned without confirming a part of a batch that failed"
                await self._failed(run, ctx, HandlerError(text))
                return
            progress.forgive(self._index)
        elif ctx.confirmed and instant() - progress.stored_at > LAG_SECONDS:
            await progress.flush()  # the position follows the transactions
        self._again, self._postponements = False, 0
        self._processor.symptoms.clear(self._lease.name, "failing", lane=self._index)

    def _watch(self, run: ChangeRun) -> CallWatch:
        processor, token = self._processor, self._lease.name
        stall_after = processor.settings.stall_after

        async def stalled() -> None:
            details = Stall(
                seconds=stall_after or 0.0, first=run.changes[0].change_id,
                changes=len(run.changes),
            )  # fmt: skip
            text = f"a call with {details.changes} changes runs for over {details.seconds} s"
            processor.symptoms.note("stalled", token, text, self._index)
            log.warning("feed.stalled", processor=processor.name, lease=token, first=details.first)
            await processor.notify("stalled", token, details)

        return CallWatch(
            limits=Limits(
                stall_after=stall_after, time_limit=processor.settings.delegate_timeout
            ),
            on_stall=stalled, with_context=processor.with_context,
            observer=processor.observer(self._lease, run.changes),
        )  # fmt: skip

    def _context(self, run: ChangeRun) -> ChangeContext:
        progress, worker = self._progress, self._worker
        moved: Moved | None = None

        async def confirm(change: Change[Any] | None) -> bool:
            await faults.point("before_checkpoint")
            whole = progress.finish(run, change)
            await progress.flush()
            worker.progressed()
            await faults.point("after_checkpoint_commit")
            return whole

        async def confirm_in(tx: Transaction) -> None:
            nonlocal moved
            await tx.execute(SQL.stay_awake)
            moved = await progress.confirm_in(tx, run)

        def committed() -> None:
            progress.committed(run, moved)
            worker.progressed()

        def undone(in_doubt: bool) -> None:
            nonlocal moved
            moved, before = None, moved
            progress.undone(before, in_doubt=in_doubt)

        trouble = progress.troubles.get(self._index)
        attempt = 1 + (trouble.attempts if trouble else 0)
        diagnostics = Diagnostics(
            read_seconds=run.read_for, wait_seconds=instant() - run.read_at,
            rows=len(run.changes), range_ids=(run.range_id,), attempts=attempt,
        )  # fmt: skip
        return ChangeContext(
            self._lease, progress.interval, attempt, confirm=confirm,
            open_transaction=worker.database.transaction, confirm_in=confirm_in,
            committed=committed, undone=undone, diagnostics=diagnostics,
            headers=lambda: self._headers(run),
        )  # fmt: skip

    def _headers(self, run: ChangeRun) -> Mapping[str, Any]:
        return {
            "continuation": self._worker.continuation(run),
            "lsn": run.end,
            "item_count": len(run.changes),
            "request_charge": 0,
        }

    async def _ended(self, run: ChangeRun, ctx: ChangeContext, error: Exception) -> None:
        """Follow the verdict that the handler raised; any other error is a failure."""
        match verdict_in(error):
            case RetryLater() as verdict:
                await self._postponed(run, ctx, verdict.delay)
            case Suspend() as verdict:
                await self._suspended(run, ctx, verdict.text)
            case _:
                await self._failed(run, ctx, error)

    async def _suspended(self, run: ChangeRun, ctx: ChangeContext, reason: str) -> None:
        """The handler raised `Suspend`: block the lease until an operator resumes it."""
        if not ctx.confirmed:
            self._progress.lanes.put_back(run)
        await self._progress.flush()
        await self._progress.journal.block()
        log.warning(
            "feed.suspended", processor=self._processor.name, lease=self._lease.name, reason=reason
        )
        self._end_blocked(f"suspended by the handler: {reason}")

    async def _postponed(self, run: ChangeRun, ctx: ChangeContext, seconds: float | None) -> None:
        """The handler raised `RetryLater`: try the same changes later; no failure is counted."""
        if ctx.confirmed:
            return
        progress = self._progress
        progress.postpone(run)
        progress.lanes.put_back(run)
        self._again = True
        if progress.troubles[self._index].marked is not None:
            await progress.mark(self._index, None)  # while nothing runs, nothing is suspected
        if seconds is None:
            seconds = self._processor.backoff.delay(self._postponements, self._random)
        self._postponements += 1
        await self._worker.pause(seconds)

    async def _failed(self, run: ChangeRun, ctx: ChangeContext, error: Exception) -> None:
        """Count the failure with the lease, so that the next owner goes on counting; then wait."""
        await self._tell_failure(run, ctx, error)
        if ctx.confirmed:
            return  # its changes are confirmed; nothing is repeated
        limit = self._processor.limit
        if limit is not None and isinstance(verdict_in(error), Fail):
            limit = 1  # no other attempt: a batch is halved at once, a single change given up
        trouble = await self._progress.fail(run, error, limit)
        if trouble.condemned(limit):
            await self._bury(run, FailureCause.of(error, trouble.failures))
            return
        self._progress.lanes.put_back(run)
        self._again = True
        nth = (trouble.failures or 1) if trouble.closely else trouble.attempts
        await self._worker.pause(self._processor.backoff.delay(nth - 1, self._random))

    async def _tell_failure(self, run: ChangeRun, ctx: ChangeContext, error: Exception) -> None:
        name, token, shown = self._processor.name, self._lease.name, error_text.shown(error)
        if isinstance(error, HandlerError):
            reported = error
            reported.context = ctx
        else:
            reported = HandlerError(f"handler of {name!r} raised {shown}", context=ctx)
            reported.__cause__ = error
        log.warning(
            "feed.handler_failed", processor=name, lease=token, attempt=ctx.attempt,
            error=shown,
        )  # fmt: skip
        where = f"item {run.changes[0].id!r} of key {run.changes[0].key}"
        text = f"attempt {ctx.attempt} failed at {where}: {shown}"
        self._processor.symptoms.note("failing", token, text, self._index)
        await self._processor.notify("error", token, reported)

    async def _bury(self, run: ChangeRun, cause: FailureCause) -> None:
        """Dead-letter the only change or group of a run, and go on behind it, or halt."""
        processor, token = self._processor, self._lease.name
        halt = processor.settings.on_poison == "halt"
        rows = await self._progress.bury(run, cause, processor.handler_name, block=halt)
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
            await processor.notify("dead_lettered", token, letter)

    def _end_blocked(self, text: str) -> None:
        self._processor.symptoms.note("blocked", self._lease.name, text)
        self._lease.ask_to_stop("blocked")
