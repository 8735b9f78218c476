"""Reads ahead for a lease: fills its lanes while there is room, and waits for changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from relevo import limits
from relevo.kernel import faults
from relevo.kernel.leases.hosts import instant

if TYPE_CHECKING:
    from relevo.feed.processing.worker import LeaseWorker

QUIET_SECONDS = 10.0
"""Minimum seconds between two stores of progress that no call has made."""


class ReadAhead:
    """Reads for one period of a worker."""

    def __init__(self, worker: LeaseWorker, bound: dict[int, int]) -> None:
        self._worker = worker
        self._processor = worker.processor
        self._lease = worker.lease
        self._progress = worker.progress
        self._bound = bound
        self._nudge = asyncio.Event()
        self._heads: dict[int, int] = {}
        self._dry: dict[int, int] = {}
        """Ranges that were read to their end, and the wake-ups that had come before."""
        self._turn = 0
        self._completed = False

    async def run(self) -> None:
        """Fill the lanes as far as they have room; wait where there is nothing to read."""
        worker = self._worker
        while not worker.over:
            if self._lease.stopping.is_set():
                await (
                    worker.room_changed.wait()
                )  # until the period ends, or the request is withdrawn
            elif worker.draining:
                if worker.end_period():
                    return
                await worker.room_changed.wait()
            elif not self._has_room():
                await worker.room_changed.wait()
            elif await self._fill():
                worker.work_changed.send()
            elif self._at_bound:
                await self._complete()
            else:
                await self._idle()

    def nudge(self) -> None:
        """Interrupt its wait: the period ends."""
        self._nudge.set()

    def _has_room(self) -> bool:
        """Whether to read on: the changes in flight and those finished above are bounded."""
        pace, ledger, lanes = self._processor.pace, self._progress.ledger, self._progress.lanes
        if self._needed:
            return True
        if ledger.finished_above >= limits.FEED_DONE_MAX:
            return False
        if lanes.count > 1:
            return ledger.in_flight < pace.lane_window
        if self._progress.troubles:
            return False
        return lanes.waiting(0) < max(pace.prefetch, 0 if self._worker.lanes[0].busy else 1)

    @property
    def _needed(self) -> list[int]:
        """Ranges that batches in trouble lie in and that are not read up to their ends yet."""
        read = self._progress.ledger.read
        return sorted({
            one for trouble in self._progress.troubles.values()
            for one, lsn in trouble.until.items() if read[one] < lsn and not self._is_bounded(one)
        })  # fmt: skip

    async def _fill(self) -> bool:
        """Read one batch; False if no range of this lease has one at present."""
        ids = self._needed or sorted(self._progress.ledger.read)
        for offset in range(len(ids)):
            range_id = ids[(self._turn + offset) % len(ids)]
            if range_id in self._dry or self._is_bounded(range_id):
                continue
            if await self._fill_from(range_id):
                self._turn = (self._turn + offset + 1) % len(ids)
                return True
        return False

    async def _fill_from(self, range_id: int) -> bool:
        progress, hints, began = self._progress, self._processor.poller.hints, instant()
        head = self._heads.pop(range_id, 0)  # now: a head found during the read may be newer
        batch = await self._worker.read(range_id, self._page())
        await faults.point("after_read")
        bound = self._bound.get(range_id)
        changes: Any = batch.changes
        position = batch.position
        if bound is not None and (position > bound or not batch.more):
            changes = [change for change in changes if change.lsn <= bound]
            position = bound
        self._lease.caught_up = False
        progress.lanes.add(
            range_id, changes, position, read_at=instant(), read_for=instant() - began
        )
        if not batch.more:
            self._dry[range_id] = hints
            # All there is was read, also of batches in trouble, and nothing arrives late. They
            # end where the run does, at the latest.
            for trouble in progress.troubles.values():
                progress.ledger.skip(range_id, trouble.until.get(range_id, 0))
            if not batch.changes:
                # Nothing up to the head that was seen before the read.
                progress.ledger.skip(range_id, head)
        elif not changes and instant() - progress.stored_at > QUIET_SECONDS:
            await progress.flush()
        return bool(changes) or batch.more

    def _page(self) -> int:
        lanes, pace = self._progress.lanes, self._processor.pace
        if lanes.count == 1:
            return pace.max_items
        room = pace.lane_window - self._progress.ledger.in_flight
        return max(1, min(room, pace.max_items * lanes.count, limits.FEED_ITEMS_MAX))

    def _is_bounded(self, range_id: int) -> bool:
        bound = self._bound.get(range_id)
        return bound is not None and self._progress.ledger.read[range_id] >= bound

    @property
    def _at_bound(self) -> bool:
        """Whether a bounded run has read everything up to its end."""
        return bool(self._bound) and all(map(self._is_bounded, self._progress.ledger.read))

    async def _complete(self) -> None:
        """Wait until all changes are finished, notify once, then hold the lease idle."""
        if self._progress.ledger.in_flight:
            await self._worker.room_changed.wait()
            return
        await self._progress.flush()
        self._processor.symptoms.clear(self._lease.name, "store", "unreadable")
        if not self._completed:
            self._completed = True
            self._processor.lease_completed()
            positions = self._progress.ledger.positions
            await self._processor.notify("completed", self._lease.name, positions)
        await self._worker.room_changed.wait()

    async def _idle(self) -> None:
        """Wait until there is something to read, with all other idle leases of this host."""
        progress, ledger = self._progress, self._progress.ledger
        every = self._processor.pace.every
        quiet = QUIET_SECONDS if every is None or every.seconds is None else every.seconds
        if instant() - progress.stored_at > quiet:
            await progress.flush()
        self._nudge.clear()
        if self._worker.draining:
            return
        self._processor.observer(self._lease).caught_up(ledger.in_flight)
        found = await self._processor.poller.wait(
            dict(ledger.read), self._lease.stopping, self._nudge,
            since=min(self._dry.values(), default=0),
            seconds=quiet if progress.behind else None,
        )  # fmt: skip
        if found.error is not None:
            raise self._worker.unreadable(found.error) from found.error
        self._heads = found.heads
        for range_id in found.heads:
            self._dry.pop(range_id, None)
        if found.split:
            self._worker.note_split()
