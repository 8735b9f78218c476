"""The loop over one owned lease: read, deliver, checkpoint; between steps, see whether to stop."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from relevo import faults
from relevo.errors import HandlerError, LeaseLost, OutcomeUnknown
from relevo.feed import context, reading
from relevo.feed.context import Context
from relevo.feed.progress import Delivery, Progress
from relevo.leases.hosts import instant
from relevo.postgres import catalog
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relevo.feed.model import Change
    from relevo.feed.processor import Processor
    from relevo.feed.reading import Batch, Source
    from relevo.leases import Lease
    from relevo.postgres import Transaction

SQL = catalog.load(__package__)
log = structlog.get_logger(__name__)
QUIET_SECONDS = 10.0
"""How often progress over changes that are not this lease's is stored, at the most."""


class Worker:
    """Delivers the changes of one lease, in order, at least once."""

    def __init__(self, processor: Processor, lease: Lease) -> None:
        self._processor = processor
        self._database = processor.database
        self._lease = lease
        self._interval = Interval()
        self._attempts = 0
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._source: Source
        self._progress = Progress({})
        self._turn = 0
        self._heads: dict[int, int] = {}
        self._stored_at = instant()
        self._confirmed = asyncio.Event()

    async def run(self) -> None:
        """Work until the lease must be let go."""
        row = (await self._database.fetch(SQL.feed_lease, self._lease.fence.lease_id))[0]
        self._interval = Interval(row["epk_min"], row["epk_max"])
        self._attempts = row["attempts"]
        positions = msgspec.json.decode(row["position"])
        await self._look({int(range_id): lsn for range_id, lsn in positions.items()})
        while not self._lease.stopping.is_set():
            self._lease.check()
            if self._progress.unconfirmed >= self._processor.max_unconfirmed:
                await self._wait_for_confirmation()
            elif not await self._step():
                await self._idle()
        await self._settle()

    async def _look(self, positions: Mapping[int, int]) -> None:
        """Read the ranges; one that was split passes its position to its children."""
        self._source = source = await reading.look(self._database, self._processor.container)
        found = {}
        for one in source.ranges.over(self._interval):
            known = [positions[i] for i in source.ranges.lineage(one.id) if i in positions]
            found[one.id] = known[0] if known else 0
            reading.check_position(
                source, self._processor.incarnation or source.incarnation,
                self._processor.mode, one.id, found[one.id],
            )  # fmt: skip
        self._progress = Progress(found)
        self._heads.clear()

    async def _step(self) -> bool:
        """Deliver one batch; False if no range of this lease has one."""
        ids = sorted(self._progress.read)
        for offset in range(len(ids)):
            range_id = ids[(self._turn + offset) % len(ids)]
            batch = await self._read(range_id)
            await faults.point("after_read")
            if not batch.changes:
                # Nothing up to the head that was seen before the read, and nothing arrives late.
                self._progress.skip(range_id, self._heads.pop(range_id, 0))
            else:
                self._turn = (self._turn + offset + 1) % len(ids)
                await self._deliver(range_id, batch)
                return True
        return False

    async def _read(self, range_id: int, until: int | None = None) -> Batch:
        part = self._source.ranges.by_id[range_id].interval.intersect(self._interval)
        batch = await reading.read(
            self._database, self._source, self._processor.mode, range_id, part,
            self._progress.read[range_id],
            max_items=self._processor.max_items,
            max_bytes=self._processor.max_bytes,
            model=self._processor.model,
        )  # fmt: skip
        if until is None or batch.position <= until:
            return batch
        kept = tuple(change for change in batch.changes if change.lsn <= until)
        return reading.Batch(changes=kept, position=until, more=True)

    async def _deliver(self, range_id: int, batch: Batch) -> None:
        """Call the handler until it returns; a retry never grows beyond the failed batch (8.6)."""
        until = batch.position
        while batch.changes:
            self._lease.check()
            delivery = self._progress.deliver(range_id, batch.position)
            ctx = self._context(delivery, batch)
            await faults.point("before_delegate")
            try:
                await context.call(self._processor.handler, ctx, list(batch.changes))
            except (LeaseLost, OutcomeUnknown, asyncio.CancelledError):
                raise
            except Exception as error:
                self._progress.withdraw(delivery)
                await self._failed(error, ctx)
                wait = self._processor.backoff.delay(self._attempts - 1, self._random)
                if await self._paused(wait):
                    return
                batch = await self._read(range_id, until)
                continue
            await faults.point("after_delegate")
            self._attempts = 0
            if not ctx.confirmed and self._processor.checkpoint == "auto":
                await self._confirm(delivery, batch, None)
            return
        self._progress.skip(range_id, until)

    def _context(self, delivery: Delivery, batch: Batch) -> Context:
        async def confirm(change: Change[Any] | None) -> None:
            await self._confirm(delivery, batch, change)

        async def confirm_in(tx: Transaction) -> None:
            after = {**self._progress.positions, delivery.range_id: delivery.end}
            await self._save(tx, after, batch.changes[-1])

        return Context(
            self._lease, self._interval, self._attempts + 1, confirm=confirm,
            open_transaction=self._database.transaction, confirm_in=confirm_in,
            committed=lambda: self._progress.confirm(delivery),
        )  # fmt: skip

    async def _confirm(self, delivery: Delivery, batch: Batch, change: Change[Any] | None) -> None:
        upto = None
        if change is not None:
            later = any(c.lsn == change.lsn and c.ordinal > change.ordinal for c in batch.changes)
            upto = change.lsn - 1 if later else change.lsn
        self._progress.confirm(delivery, upto)
        self._confirmed.set()
        await faults.point("before_checkpoint")
        await self._settle(change or batch.changes[-1])
        await faults.point("after_checkpoint_commit")

    async def _save(self, where: Any, positions: dict[int, int], last: Change[Any] | None) -> None:
        text = msgspec.json.encode({str(k): v for k, v in positions.items()}).decode()
        arguments = (
            self._lease.fence.lease_id, self._lease.epoch, self._processor.host_incarnation,
            text, last.ts if last else None,
        )  # fmt: skip
        if where is self._database:
            rows = await self._database.write(SQL.checkpoint, *arguments, idempotent=True)
        else:
            rows = await where.fetch(SQL.checkpoint, *arguments)
        if not rows:
            raise LeaseLost(
                f"lease {self._lease.name!r} was lost; the checkpoint of {self._processor.name!r}"
                " was refused and nothing was written"
            )
        self._progress.stored, self._stored_at = dict(positions), instant()

    async def _failed(self, error: Exception, ctx: Context) -> None:
        """Count the failure with the lease, so that the next owner goes on counting."""
        rows = await self._database.write(
            SQL.note_failure, self._lease.fence.lease_id, self._lease.epoch,
            f"{type(error).__name__}: {error}"[:2000],
        )  # fmt: skip
        self._attempts = rows[0]["attempts"] if rows else self._attempts + 1
        told = HandlerError(f"handler of {self._processor.name!r} raised {error!r}", context=ctx)
        told.__cause__ = error
        log.warning(
            "feed.handler_failed", processor=self._processor.name, lease=self._lease.name,
            attempt=self._attempts, error=repr(error),
        )  # fmt: skip
        await self._processor.tell("error", self._lease.name, told)

    async def _paused(self, seconds: float) -> bool:
        """Wait before a retry; True if the lease must be let go meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._lease.stopping.wait()
        except TimeoutError:
            return False
        return True

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
        if instant() - self._stored_at > QUIET_SECONDS:
            await self._settle()
        found = await self._processor.poller.wait(self._progress.read, self._lease.stopping)
        self._heads = found.heads
        if found.split and not self._progress.unconfirmed:
            await self._look(self._progress.positions)

    async def _settle(self, last: Change[Any] | None = None) -> None:
        """Store what may be stored, if it moved; so a quiet unit resumes near the head, too."""
        positions = self._progress.positions
        if positions != self._progress.stored:
            await self._save(self._database, positions, last)
