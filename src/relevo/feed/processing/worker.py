"""The loop over one owned lease: reads ahead, spreads over lanes, and decides when to stop.

Reading and delivering run beside each other. A period lasts while the ranges and the number of
lanes stay the same; it ends when no call is open. A failing store ends it, too, but cuts no call
off: calls under way finish and count.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

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
from relevo.feed.processing.delivery import DeliveryLane
from relevo.feed.processing.isolation import inherited
from relevo.feed.processing.journal import LeaseJournal
from relevo.feed.processing.progress import LeaseProgress
from relevo.feed.processing.read_ahead import ReadAhead
from relevo.feed.reading import log as reading
from relevo.feed.reading import tokens
from relevo.feed.reading.tokens import Token, TokenPlace
from relevo.kernel import error_text
from relevo.kernel.leases.hosts import instant
from relevo.kernel.postgres import catalog
from relevo.kernel.running.calls import CallAbandoned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from relevo.feed.processing.host import RunningProcessor
    from relevo.feed.processing.ledger import ChangeRun
    from relevo.feed.reading.log import Batch, FeedSource
    from relevo.kernel.leases import Lease

T = TypeVar("T")
SQL = catalog.load("relevo.feed")
LOOK_SECONDS = 1.0
"""Seconds that a worker may reuse a read of the ranges: a host often gets many leases at once."""
CRASHES_ISOLATE = 2
"""Crashes at one position after which changes are delivered one by one."""
READING_FAILED = (MonitoredError, FeedExpired, FeedRegressed, ContainerRecreated)
PATIENT = (*READING_FAILED, LeaseStoreError, HostFenced)
"""Errors that end a period without cutting off its calls."""


class LeaseWorker:
    """Delivers the changes of one lease, in order per key, at least once."""

    def __init__(self, processor: RunningProcessor, lease: Lease, *, again: bool = False) -> None:
        self.processor = processor
        self.database = processor.database
        self.lease: Lease = lease
        self.progress: LeaseProgress = LeaseProgress(
            LeaseJournal(self.database, lease, processor.host_incarnation, processor.checkpoints),
            processor.pace,
            self._note_stored,
        )
        self.work_changed = Broadcast()
        """For lanes: changes came, were finished, or the period ended."""
        self.room_changed = Broadcast()
        """For the reader: changes were taken or finished, or the period ended."""
        self.lanes: list[DeliveryLane] = []
        self._read_ahead: ReadAhead | None = None
        self._source: FeedSource
        self._looked = False
        self._bound: dict[int, int] = {}
        self._to_cut = False
        self._split = False
        self.over = False
        """Whether the period ends: no further call is made."""
        self._stopped = False
        self._again = again

    async def run(self) -> None:
        """Work until the lease must be released."""
        progress = self.progress
        try:
            await progress.open(again=self._again)
            await self._look()
            while not (self._stopped or self.lease.stopping.is_set()):
                self.lease.check()
                await self._period()
            await progress.flush()
        except (*READING_FAILED, HostFenced, CallAbandoned):
            with suppress(RelevoError):
                await progress.flush()  # the changes finished before it
            raise
        finally:
            progress.close()

    @property
    def working(self) -> bool:
        """Whether calls may be made."""
        return not self.over and not self.lease.stopping.is_set()

    def progressed(self) -> None:
        """Wake tasks that wait for a finished or returned run."""
        self.progress.lanes.release()
        self.work_changed.send()
        self.room_changed.send()
        if self.draining and self._read_ahead is not None:
            self._read_ahead.nudge()

    def is_due(self) -> bool:
        """Whether a checkpoint is due."""
        every, progress = self.processor.pace.every, self.progress
        return (
            every is None
            or progress.crashes > 0
            or progress.watched
            or (every.batches is not None and progress.calls_unstored >= every.batches)
            or (every.seconds is not None and instant() - progress.stored_at >= every.seconds)
        )

    def note_split(self) -> None:
        """Record that a range was split, so that its children are read."""
        self._split = True
        self.work_changed.send()

    def end_period(self) -> bool:
        """End the period unless a call is open; undelivered changes are read again."""
        if self.progress.ledger.unconfirmed:
            return False
        self._end()
        return True

    async def pause(self, seconds: float) -> None:
        """Wait, unless the lease must be let go or the period ends."""
        try:
            async with asyncio.timeout(seconds):
                while self.working:
                    await self.work_changed.wait()
        except TimeoutError:
            return

    async def recheck(self, run: ChangeRun) -> ChangeRun | None:
        """Return the rest of a run before a retry, without changes that left the log since."""
        if self.processor.settings.mode != "latest":
            return run
        lineage = self._source.ranges.lineage(run.range_id)
        lsns = sorted({change.lsn for change in run.changes})
        rows = await self._monitored(self.database.fetch(SQL.still_there, lineage, lsns))
        return self.progress.ledger.keep(run, {(row["lsn"], row["ordinal"]) for row in rows})

    def continuation(self, run: ChangeRun) -> str:
        """Return a pull token for the changes behind a call, as far as all before are finished."""
        ranges, whole = self._source.ranges.by_id, self.progress.interval
        places = []
        for one, lsn in self.progress.ledger.unstored(run).positions.items():
            part = ranges[one].interval.intersect(whole)
            places.append(TokenPlace(one, part.low, part.high, lsn))
        wanted = self.processor.filter
        return tokens.encode(
            Token(incarnation=self._source.incarnation, mode=self.processor.settings.mode,
                  places=tuple(places), filter=wanted.digest if wanted else None)
        )  # fmt: skip

    async def _look(self) -> None:
        """Read the ranges; one that was split passes its position to its children."""
        processor = self.processor
        since = instant() if self._looked else instant() - LOOK_SECONDS
        source = await self._monitored(processor.source(since))
        stored = self.progress.ledger.stored
        if any(one not in source.ranges.by_id for one in stored):
            source = await self._monitored(processor.source(instant()))  # it was too old
        reading.check_same(source, processor.incarnation)
        self._source, self._looked = source, True
        ranges = source.ranges.over(self.progress.interval)
        lineages = {range_.id: source.ranges.lineage(range_.id) for range_ in ranges}
        positions = self.progress.begin(lineages)
        await self._monitored(
            reading.check_positions(
                self.database, source, processor.incarnation, processor.settings.mode,
                positions.items(),
            )
        )  # fmt: skip
        self._bound = inherited(processor.bound or {}, lineages)
        self._to_cut, self._split = len(ranges) > 1, False

    async def _period(self) -> None:
        """Work until the ranges or the number of lanes change, or the lease must be let go."""
        progress = self.progress
        if self._split:
            await self._look()
        else:
            progress.restart()
        if self._to_cut and not progress.troubles:
            await self._cut()
            if self.lease.stopping.is_set():
                return
        await self._mind_crashes()
        count = progress.spread().count
        progress.confine(self._bound)
        self.over = False
        self._read_ahead = ReadAhead(self, self._bound)
        self.lanes = [DeliveryLane(self, index) for index in range(count)]
        watching = asyncio.ensure_future(self._watch_for_stop())
        try:
            parts = [self._read_ahead.run(), *(lane.run() for lane in self.lanes)]
            await together(parts, self._end, PATIENT)
        finally:
            watching.cancel()

    async def _cut(self) -> None:
        """Cut the lease along its ranges, while nothing of it is under way or in trouble."""
        progress, self._to_cut = self.progress, False
        await progress.flush()
        try:
            await lease_splitting.follow(
                self.database, self.lease, self.processor.host_incarnation, self._source,
                progress.interval, progress.ledger.positions,
            )  # fmt: skip
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise LeaseStoreError(f"the lease cannot be split along its ranges: {error}") from error

    async def _mind_crashes(self) -> None:
        """After a crash, see how far calls may have been; after another, go one by one."""
        progress, pace = self.progress, self.processor.pace
        trouble = progress.troubles.get(0)
        one_by_one = progress.whole_trouble and trouble is not None and trouble.singles
        if progress.crashes >= CRASHES_ISOLATE and not one_by_one:
            if until := await self._stretch(pace.in_flight_max):
                progress.go_one_by_one(until)
        elif progress.crashes and not (pace.in_order or progress.watched or one_by_one):
            progress.watch(await self._stretch(pace.in_flight_max))

    async def _stretch(self, count: int) -> dict[int, int]:
        """Return the positions after the next `count` changes, by range."""
        batches = {one: await self.read(one, count) for one in sorted(self.progress.ledger.read)}
        return {one: batch.position for one, batch in batches.items() if batch.changes}

    async def _monitored(self, read: Awaitable[T]) -> T:
        """Wrap errors of the container, to separate them from those of handlers and leases."""
        try:
            return await read
        except (FeedExpired, FeedRegressed, ContainerRecreated):
            raise
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> MonitoredError:
        """Return the error for a container that cannot be read."""
        said = error_text.message(error, error_text.LINE_MAX)
        return MonitoredError(f"container {self.processor.container!r} cannot be read: {said}")

    @property
    def draining(self) -> bool:
        """Whether reading and delivery stop, because the period ends."""
        progress = self.progress
        fewer = progress.lanes.count < self.processor.pace.lanes
        return self._split or ((fewer or self._to_cut) and not progress.troubles)

    async def read(self, range_id: int, count: int) -> Batch:
        """Read the next changes of a range."""
        progress, processor = self.progress, self.processor
        part = self._source.ranges.by_id[range_id].interval.intersect(progress.interval)
        batch = await self._monitored(
            reading.read(
                self.database, self._source, processor.settings.mode, range_id, part,
                progress.ledger.read[range_id], max_items=count, max_bytes=processor.pace.max_bytes,
                model=processor.settings.model, wanted=processor.filter,
            )
        )  # fmt: skip
        processor.symptoms.clear(self.lease.name, "unreadable")
        if not batch.changes:  # else storing them clears it
            self._note_stored()
        return batch

    def _note_stored(self) -> None:
        self.processor.symptoms.clear(self.lease.name, "store")

    async def _watch_for_stop(self) -> None:
        """End the period when no call runs any more, unless the request is withdrawn before."""
        while True:
            await self.lease.stopping.wait()
            self.work_changed.send()
            while self.lease.stopping.is_set():
                if not any(lane.busy for lane in self.lanes):
                    self._stopped = True
                    self._end()
                    return
                await self.room_changed.wait()

    def _end(self) -> None:
        self.over = True
        self.work_changed.send()
        self.room_changed.send()


class Broadcast:
    """Wakes all waiting tasks when something has changed; each then checks the state itself."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def send(self) -> None:
        """Wake all tasks that wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next `send`."""
        await self._event.wait()


async def together(
    parts: list[Coroutine[Any, Any, None]],
    end: Callable[[], None],
    patient: tuple[type[Exception], ...],
) -> None:
    """Run all parts to their end; the first failure ends the others, and its error is raised.

    `end` asks the others to end. They may take their time if the error is a `patient` one; with any
    other they are canceled.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    pending, errors = set(tasks), list[BaseException]()
    try:
        while pending and all(isinstance(one, patient) for one in errors):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            errors += [error for one in done if (error := one.exception()) is not None]
            if errors:
                end()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if errors:
        raise next((one for one in errors if not isinstance(one, patient)), errors[0])
