"""The loop over one owned lease: read, deliver, checkpoint; between steps, see whether to stop.

A batch that fails puts the lease in trouble (`relevo.feed.isolation`) until its end; then a step
tries the part of it that is next. Dead-lettering and moving past it are one statement.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from relevo import faults
from relevo.errors import (
    ContainerRecreated,
    DatabaseUnavailable,
    FeedExpired,
    FeedRegressed,
    HandlerError,
    LeaseLost,
    LeaseStoreError,
    MonitoredError,
    OutcomeUnknown,
    RelevoError,
)
from relevo.feed import dead_letters, lease_splitting, reading
from relevo.feed.calls import CallAbandoned, Watch, call
from relevo.feed.context import Context
from relevo.feed.health import Stall
from relevo.feed.isolation import Isolation
from relevo.feed.journal import Cause, Journal
from relevo.feed.standing import Part, Standing, key_of
from relevo.leases.hosts import instant
from relevo.postgres import catalog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from relevo.feed.model import Change
    from relevo.feed.processor import Processor
    from relevo.feed.progress import Delivery
    from relevo.feed.reading import Batch, Source
    from relevo.leases import Lease
    from relevo.postgres import Transaction

T = TypeVar("T")
SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
QUIET_SECONDS = 10.0
"""How often progress over changes that are not this lease's is stored, at the most."""
CRASHES_ISOLATE = 2
"""Unclean losses at one position, after which changes are delivered one by one."""
CRASHES_BURY = 3
"""Unclean losses, after which the change that was in flight is dead-lettered."""
CRASHES_BLOCK = 5
"""Unclean losses, after which the lease is blocked if there are no dead letters."""


class Worker:
    """Delivers the changes of one lease, in order, at least once."""

    def __init__(self, processor: Processor, lease: Lease) -> None:
        self._processor = processor
        self._database = processor.database
        self._lease = lease
        self._standing = Standing(Journal(self._database, lease, processor.host_incarnation))
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._source: Source
        self._turn = 0
        self._to_cut = False
        self._heads: dict[int, int] = {}
        self._confirmed = asyncio.Event()

    async def run(self) -> None:
        """Work until the lease must be let go."""
        await self._look(await self._standing.open())
        self._processor.symptoms.clear(self._lease.name, "store")
        while not self._lease.stopping.is_set():
            self._lease.check()
            if self._standing.progress.unconfirmed >= self._processor.max_unconfirmed:
                await self._wait_for_confirmation()
            elif await self._troubled():
                await self._isolate()
            elif self._to_cut and not self._standing.progress.unconfirmed:
                await self._cut()
            elif not await self._step():
                await self._idle()
        await self._standing.settle()

    async def _look(self, positions: Mapping[int, int]) -> None:
        """Read the ranges; one that was split passes its position to its children."""
        self._source = source = await self._monitored(
            reading.look(self._database, self._processor.container)
        )
        ranges = source.ranges.over(self._standing.interval)
        lineages = {one.id: source.ranges.lineage(one.id) for one in ranges}
        incarnation = self._processor.incarnation or source.incarnation
        for range_id, lsn in self._standing.begin(positions, lineages).items():
            reading.check_position(source, incarnation, self._processor.mode, range_id, lsn)
        self._heads.clear()
        self._to_cut = len(ranges) > 1

    async def _cut(self) -> None:
        """Cut the lease along its ranges, while nothing of it is under way or in trouble."""
        standing, self._to_cut = self._standing, False
        try:
            await lease_splitting.follow(
                self._database, self._lease, self._processor.host_incarnation, self._source,
                standing.interval, standing.progress.positions,
            )  # fmt: skip
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise LeaseStoreError(f"the lease cannot be cut along its ranges: {error}") from error

    async def _monitored(self, read: Awaitable[T]) -> T:
        """Errors of the container are told apart from those of handlers and leases (U5)."""
        try:
            return await read
        except (FeedExpired, FeedRegressed, ContainerRecreated):
            raise
        except RelevoError as error:
            raise MonitoredError(
                f"container {self._processor.container!r} cannot be read: {error}"
            ) from error

    async def _step(self) -> bool:
        """Deliver one batch; False if no range of this lease has one."""
        ids = sorted(self._standing.progress.read)
        for offset in range(len(ids)):
            range_id = ids[(self._turn + offset) % len(ids)]
            batch = await self._read(range_id)
            await faults.point("after_read")
            if not batch.changes:
                # Nothing up to the head that was seen before the read, and nothing arrives late.
                self._standing.progress.skip(range_id, self._heads.pop(range_id, 0))
            else:
                self._turn = (self._turn + offset + 1) % len(ids)
                await self._deliver(Part.of(range_id, batch, len(batch.changes), batch.position))
                return True
        return False

    async def _read(self, range_id: int, until: int | None = None) -> Batch:
        standing = self._standing
        part = self._source.ranges.by_id[range_id].interval.intersect(standing.interval)
        batch = await self._monitored(
            reading.read(
                self._database, self._source, self._processor.mode, range_id, part,
                standing.progress.read[range_id],
                max_items=self._processor.max_items,
                max_bytes=self._processor.max_bytes,
                model=self._processor.model,
            )
        )  # fmt: skip
        if until is None:
            return batch
        kept = tuple(
            c for c in batch.changes if c.lsn <= until and not standing.is_done(range_id, c)
        )
        return reading.Batch(changes=kept, position=min(batch.position, until), more=True)

    async def _troubled(self) -> bool:
        """Whether a batch is to be delivered in another way than the first time."""
        standing = self._standing
        trouble = standing.trouble
        if standing.crashes >= CRASHES_ISOLATE and not (trouble and trouble.singles):
            batches = {one: await self._read(one) for one in sorted(standing.progress.read)}
            until = {one: batch.position for one, batch in batches.items() if batch.changes}
            if until:
                standing.trouble = (trouble or Isolation(until={})).one_by_one(until)
        return standing.trouble is not None

    async def _isolate(self) -> None:
        """Deliver the next part of a batch in trouble."""
        standing = self._standing
        trouble = standing.trouble
        assert trouble is not None
        if trouble.closely and standing.progress.unconfirmed:
            await self._wait_for_confirmation()
            return
        range_id = min(trouble.until)
        until = trouble.until[range_id]
        batch = await self._read(range_id, until)
        await faults.point("after_read")
        if not batch.changes:
            await standing.leave(range_id)
            return
        size = len(trouble.part([key_of(change) for change in batch.changes]))
        part = Part.of(range_id, batch, size, until)
        if not trouble.singles:
            await self._deliver(part)
        elif trouble.suspect == key_of(part.changes[0]) and standing.crashes >= CRASHES_BURY:
            await self._give_up_on(part)
        else:
            await self._deliver_marked(part)

    async def _deliver_marked(self, part: Part) -> None:
        """Deliver one change so that a crash tells which it was: one at a time in a process."""
        async with self._processor.one_by_one:
            await self._standing.mark(part)
            await self._deliver(part)

    async def _give_up_on(self, part: Part) -> None:
        """A change has killed its process too often."""
        crashes = self._standing.crashes
        if self._processor.limit is not None:
            text = f"the process ended {crashes} times while this change was delivered"
            cause = Cause(reason="crash", error_type="Crash", message=text, attempts=crashes)
            await self._bury(part, cause)
        elif crashes < CRASHES_BLOCK:
            await self._deliver_marked(part)
        else:
            await self._standing.journal.block()
            self._end_blocked(f"blocked after {crashes} crashes at one change")

    async def _deliver(self, part: Part) -> None:
        """Call the handler once."""
        self._lease.check()
        delivery = self._standing.progress.deliver(part.range_id, part.end)
        ctx = self._context(delivery, part)
        await faults.point("before_delegate")
        try:
            await call(self._processor.handler, ctx, list(part.changes), self._watch(part))
        except (LeaseLost, LeaseStoreError, CallAbandoned):
            raise
        except OutcomeUnknown as error:
            raise LeaseStoreError(f"it is not known what was stored: {error}") from error
        except Exception as error:
            await self._failed(part, delivery, ctx, error)
        else:
            await faults.point("after_delegate")
            await self._returned(part, delivery, ctx)
        finally:
            self._processor.symptoms.clear(self._lease.name, "stalled")

    async def _returned(self, part: Part, delivery: Delivery, ctx: Context) -> None:
        """The handler took what it was given; where it confirms itself, that may come later."""
        standing = self._standing
        if not ctx.confirmed and self._processor.checkpoint == "auto":
            await ctx.checkpoint()
        elif not ctx.confirmed and standing.trouble is not None:
            if standing.trouble.closely:
                text = "the handler returned without confirming a part of a batch that failed"
                await self._failed(part, delivery, ctx, HandlerError(text))
                return
            standing.trouble = None
        standing.attempts = 0
        self._processor.symptoms.clear(self._lease.name, "failing")

    def _watch(self, part: Part) -> Watch:
        processor, token = self._processor, self._lease.name

        async def stalled() -> None:
            details = Stall(
                seconds=processor.stall_after or 0.0, first=part.changes[0].change_id,
                changes=len(part.changes),
            )  # fmt: skip
            text = f"a call with {details.changes} changes runs for over {details.seconds} s"
            processor.symptoms.note("stalled", token, text)
            log.warning("feed.stalled", processor=processor.name, lease=token, first=details.first)
            await processor.tell("stalled", token, details)

        return Watch(
            stall_after=processor.stall_after, timeout=processor.delegate_timeout, on_stall=stalled
        )

    def _context(self, delivery: Delivery, part: Part) -> Context:
        standing = self._standing

        async def confirm(change: Change[Any] | None) -> bool:
            await faults.point("before_checkpoint")
            whole = await standing.confirm(delivery, part, change)
            self._confirmed.set()
            await faults.point("after_checkpoint_commit")
            return whole

        async def confirm_in(tx: Transaction) -> None:
            await tx.execute(SQL.stay_awake)
            await standing.confirm_in(tx, delivery, part)

        def committed() -> None:
            standing.committed(delivery, part)
            self._confirmed.set()

        return Context(
            self._lease, standing.interval, standing.attempts + 1, confirm=confirm,
            open_transaction=self._database.transaction, confirm_in=confirm_in,
            committed=committed,
        )  # fmt: skip

    async def _failed(self, part: Part, delivery: Delivery, ctx: Context, error: Exception) -> None:
        """Count the failure with the lease, so that the next owner goes on counting; then wait."""
        await self._tell_failure(ctx, error)
        if ctx.confirmed:
            return  # what it did counts; there is nothing to repeat
        limit = self._processor.limit
        trouble = await self._standing.fail(delivery, part, error, limit)
        if trouble.condemned(limit):
            await self._bury(part, Cause.of(error, trouble.failures))
            return
        nth = (trouble.failures or 1) if trouble.closely else self._standing.attempts
        try:
            async with asyncio.timeout(self._processor.backoff.delay(nth - 1, self._random)):
                await self._lease.stopping.wait()
        except TimeoutError:
            return

    async def _tell_failure(self, ctx: Context, error: Exception) -> None:
        name, token = self._processor.name, self._lease.name
        if isinstance(error, HandlerError):
            told = error
            told.context = ctx
        else:
            told = HandlerError(f"handler of {name!r} raised {error!r}", context=ctx)
            told.__cause__ = error
        log.warning(
            "feed.handler_failed", processor=name, lease=token, attempt=ctx.attempt,
            error=repr(error),
        )  # fmt: skip
        self._processor.symptoms.note("failing", token, f"attempt {ctx.attempt} failed: {error!r}")
        await self._processor.tell("error", token, told)

    async def _bury(self, part: Part, cause: Cause) -> None:
        """Dead-letter the only change of a part, and go on behind it, or halt."""
        processor, token = self._processor, self._lease.name
        halt = processor.on_poison == "halt"
        row = await self._standing.bury(part, cause, processor.handler_name, block=halt)
        letter = dead_letters.read(row)
        processor.symptoms.clear(token, "failing")
        log.error(
            "feed.dead_lettered", processor=processor.name, lease=token, letter=letter.id,
            change=part.changes[0].change_id, reason=cause.reason, error=cause.message,
        )  # fmt: skip
        if halt:
            self._end_blocked(f"halted at dead letter {letter.id}")
        await processor.tell("dead_lettered", token, letter)

    def _end_blocked(self, text: str) -> None:
        self._processor.symptoms.note("blocked", self._lease.name, text)
        self._lease.ask_to_stop("blocked")

    async def _wait_for_confirmation(self) -> None:
        """Read no further while too many batches are open (9.2)."""
        self._confirmed.clear()
        waits = [asyncio.ensure_future(e.wait()) for e in (self._confirmed, self._lease.stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _idle(self) -> None:
        """Wait until there is something to read, with all other idle leases of this host."""
        standing = self._standing
        if instant() - standing.stored_at > QUIET_SECONDS:
            await standing.settle()
        found = await self._processor.poller.wait(standing.progress.read, self._lease.stopping)
        self._heads = found.heads
        if found.split and not standing.progress.unconfirmed:
            await self._look(standing.progress.positions)
