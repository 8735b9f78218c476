"""The loop over one owned lease: reads ahead, spreads over lanes, and sees when to stop.

Reading and delivering run beside each other. A period lasts while the ranges and the number of
lanes stay the same; it ends when no call is open. A store that fails ends it, too, but cuts no call
off: what it does is finished and counts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from relevo.errors import (
    ContainerRecreated,
    DatabaseUnavailable,
    FeedExpired,
    FeedRegressed,
    HostFenced,
    LeaseStoreError,
    MonitoredError,
    OutcomeUnknown,
    RelevoError,
)
from relevo.feed.operating import lease_splitting
from relevo.feed.processing.delivery import Lane
from relevo.feed.processing.feeding import Feeder
from relevo.feed.processing.isolation import inherited
from relevo.feed.processing.journal import Journal
from relevo.feed.processing.pulse import Pulse, together
from relevo.feed.processing.standing import Standing
from relevo.feed.reading import log as reading
from relevo.feed.reading import tokens
from relevo.feed.reading.tokens import Place, Token
from relevo.kernel import error_text
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from relevo.feed.processing.ledger import Run
    from relevo.feed.processing.processor import Processor
    from relevo.feed.reading.log import Batch, Source
    from relevo.kernel.leases import Lease

T = TypeVar("T")
SQL = catalog.load("relevo.feed")
LOOK_SECONDS = 1.0
"""How old a look at the ranges may be with which a worker begins: leases come in numbers."""
CRASHES_ISOLATE = 2
"""Unclean losses at one position, after which changes are delivered one by one."""
READING_FAILED = (MonitoredError, FeedExpired, FeedRegressed, ContainerRecreated)
PATIENT = (*READING_FAILED, LeaseStoreError, HostFenced)
"""What ends a period without cutting calls off: they may end, and nobody calls beside them."""


class Worker:
    """Delivers the changes of one lease, in order per key, at least once."""

    def __init__(self, processor: Processor, lease: Lease, *, again: bool = False) -> None:
        self.processor = processor
        self.database = processor.database
        self.lease = lease
        self.standing = Standing(
            Journal(self.database, lease, processor.host_incarnation, processor.checkpoints),
            processor.pace,
            self._note_stored,
        )
        self.pulse = Pulse()
        """For lanes: something came, was finished, or is over."""
        self.room = Pulse()
        """For the reader: something was taken or finished, or is over."""
        self.lanes: list[Lane] = []
        self._feeder: Feeder | None = None
        self._source: Source
        self._looked = False
        self._bound: dict[int, int] = {}
        self._to_cut = False
        self._split = False
        self.over = False
        """Whether the period is to end: no further call is made."""
        self._stopped = False
        self._again = again

    async def run(self) -> None:
        """Work until the lease must be let go."""
        standing = self.standing
        try:
            await standing.open(again=self._again)
            await self._look()
            while not (self._stopped or self.lease.stopping.is_set()):
                self.lease.check()
                await self._period()
            await standing.flush()
        except (*READING_FAILED, HostFenced, CallAbandoned):
            with suppress(RelevoError):
                await standing.flush()  # what was finished before it
            raise
        finally:
            standing.close()

    @property
    def working(self) -> bool:
        """Whether calls may be made."""
        return not self.over and not self.lease.stopping.is_set()

    def progressed(self) -> None:
        """Something was finished or put back: others may have waited for that."""
        self.standing.lanes.release()
        self.pulse.beat()
        self.room.beat()
        if self.draining and self._feeder is not None:
            self._feeder.nudge()

    def is_due(self) -> bool:
        """Whether what calls have finished is to be stored now."""
        every, standing = self.processor.pace.every, self.standing
        return (
            every is None
            or standing.crashes > 0
            or standing.watched
            or (every.batches is not None and standing.calls_unstored >= every.batches)
            or (every.seconds is not None and instant() - standing.stored_at >= every.seconds)
        )

    def note_split(self) -> None:
        """A range of this lease was split: its children are to be read."""
        self._split = True
        self.pulse.beat()

    def end_period(self) -> bool:
        """End the period unless a call is open; what was read and not delivered is read again."""
        if self.standing.ledger.unconfirmed:
            return False
        self._end()
        return True

    async def pause(self, seconds: float) -> None:
        """Wait, unless the lease must be let go or the period ends."""
        try:
            async with asyncio.timeout(seconds):
                while self.working:
                    await self.pulse.wait()
        except TimeoutError:
            return

    async def recheck(self, run: Run) -> Run | None:
        """Return what is left of a run that is tried again: the same as if it were read again."""
        if self.processor.mode != "latest":
            return run
        lineage = self._source.ranges.lineage(run.range_id)
        lsns = sorted({change.lsn for change in run.changes})
        rows = await self._monitored(self.database.fetch(SQL.still_there, lineage, lsns))
        return self.standing.ledger.keep(run, {(row["lsn"], row["ordinal"]) for row in rows})

    def continuation(self, run: Run) -> str:
        """Return a pull token for what lies behind a call, as far as all before it is finished."""
        ranges, whole = self._source.ranges.by_id, self.standing.interval
        places = []
        for one, lsn in self.standing.ledger.unstored(run).positions.items():
            part = ranges[one].interval.intersect(whole)
            places.append(Place(one, part.low, part.high, lsn))
        wanted = self.processor.filter
        return tokens.encode(
            Token(incarnation=self._source.incarnation, mode=self.processor.mode,
                  places=tuple(places), filter=wanted.digest if wanted else None)
        )  # fmt: skip

    async def _look(self) -> None:
        """Read the ranges; one that was split passes its position to its children."""
        processor = self.processor
        since = instant() if self._looked else instant() - LOOK_SECONDS
        source = await self._monitored(processor.source(since))
        stored = self.standing.ledger.stored
        if any(one not in source.ranges.by_id for one in stored):
            source = await self._monitored(processor.source(instant()))  # it was too old
        incarnation = processor.incarnation or source.incarnation
        reading.check_same(source, incarnation)
        self._source, self._looked = source, True
        ranges = source.ranges.over(self.standing.interval)
        lineages = {one.id: source.ranges.lineage(one.id) for one in ranges}
        positions = self.standing.begin(lineages)
        await self._monitored(
            reading.check_positions(
                self.database, source, incarnation, processor.mode, positions.items()
            )
        )
        self._bound = inherited(processor.bound or {}, lineages)
        self._to_cut, self._split = len(ranges) > 1, False

    async def _period(self) -> None:
        """Work until the ranges or the number of lanes change, or the lease must be let go."""
        standing = self.standing
        if self._split:
            await self._look()
        else:
            standing.restart()
        if self._to_cut and not standing.troubles:
            await self._cut()
            if self.lease.stopping.is_set():
                return
        await self._mind_crashes()
        count = standing.spread().count
        standing.confine(self._bound)
        self.over = False
        self._feeder = Feeder(self, self._bound)
        self.lanes = [Lane(self, index) for index in range(count)]
        watching = asyncio.ensure_future(self._watch_for_stop())
        try:
            parts = [self._feeder.run(), *(lane.run() for lane in self.lanes)]
            await together(parts, self._end, PATIENT)
        finally:
            watching.cancel()

    async def _cut(self) -> None:
        """Cut the lease along its ranges, while nothing of it is under way or in trouble."""
        standing, self._to_cut = self.standing, False
        await standing.flush()
        try:
            await lease_splitting.follow(
                self.database, self.lease, self.processor.host_incarnation, self._source,
                standing.interval, standing.ledger.positions,
            )  # fmt: skip
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise LeaseStoreError(f"the lease cannot be cut along its ranges: {error}") from error

    async def _mind_crashes(self) -> None:
        """After a crash, see how far calls may have been; after another, go one by one."""
        standing, pace = self.standing, self.processor.pace
        trouble = standing.troubles.get(0)
        one_by_one = standing.whole_trouble and trouble is not None and trouble.singles
        if standing.crashes >= CRASHES_ISOLATE and not one_by_one:
            if until := await self._stretch(pace.in_flight_max):
                standing.go_one_by_one(until)
        elif standing.crashes and not (pace.in_order or standing.watched or one_by_one):
            standing.watch(await self._stretch(pace.in_flight_max))

    async def _stretch(self, count: int) -> dict[int, int]:
        """Return how far so many changes go from the positions on, in ranges that have any."""
        batches = {one: await self.read(one, count) for one in sorted(self.standing.ledger.read)}
        return {one: batch.position for one, batch in batches.items() if batch.changes}

    async def _monitored(self, read: Awaitable[T]) -> T:
        """Tell errors of the container apart from those of handlers and leases."""
        try:
            return await read
        except (FeedExpired, FeedRegressed, ContainerRecreated):
            raise
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> MonitoredError:
        """What is told when the container cannot be read."""
        said = error_text.message(error, error_text.LINE_MAX)
        return MonitoredError(f"container {self.processor.container!r} cannot be read: {said}")

    @property
    def draining(self) -> bool:
        """Whether nothing more is read and delivered, because the period is to end."""
        standing = self.standing
        fewer = standing.lanes.count < self.processor.pace.lanes
        return self._split or ((fewer or self._to_cut) and not standing.troubles)

    async def read(self, range_id: int, count: int) -> Batch:
        """Read the next changes of a range."""
        standing, processor = self.standing, self.processor
        part = self._source.ranges.by_id[range_id].interval.intersect(standing.interval)
        batch = await self._monitored(
            reading.read(
                self.database, self._source, processor.mode, range_id, part,
                standing.ledger.read[range_id], max_items=count, max_bytes=processor.pace.max_bytes,
                model=processor.model, wanted=processor.filter,
            )
        )  # fmt: skip
        processor.symptoms.clear(self.lease.name, "unreadable")
        if not batch.changes:  # else storing them will tell
            self._note_stored()
        return batch

    def _note_stored(self) -> None:
        self.processor.symptoms.clear(self.lease.name, "store")

    async def _watch_for_stop(self) -> None:
        """End the period when no call runs any more, unless the request is withdrawn before."""
        while True:
            await self.lease.stopping.wait()
            self.pulse.beat()
            while self.lease.stopping.is_set():
                if not any(lane.busy for lane in self.lanes):
                    self._stopped = True
                    self._end()
                    return
                await self.room.wait()

    def _end(self) -> None:
        self.over = True
        self.pulse.beat()
        self.room.beat()
