"""The progress of a lease: its ledger and its troubles, stored under the lease's fence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.errors import Conflict, LeaseLost, LeaseStoreError
from relevo.feed.processing.isolation import Isolation, Key, Troubles, inherited
from relevo.feed.processing.lanes import Lanes
from relevo.feed.processing.ledger import ChangeLedger, LedgerSnapshot
from relevo.kernel.leases.hosts import instant
from relevo.store.ranges import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import asyncpg

    from relevo.feed.model import Change
    from relevo.feed.processing.journal import FailureCause, LeaseJournal
    from relevo.feed.processing.ledger import ChangeRun, Done
    from relevo.feed.processing.pacing import Pace
    from relevo.kernel.postgres import Transaction

LAG_SECONDS = 0.5
"""Seconds that the position may lag behind the transactions of lanes."""


class Moved(Struct, frozen=True):
    """A checkpoint inside a user's transaction."""

    snapshot: LedgerSnapshot
    noted: Troubles | None


class LeaseProgress:
    """The progress of a worker on its lease; the journal stores it.

    Writes follow each other, and each stores all that is finished when its turn comes: lanes that
    finish at about the same time share one.
    """

    def __init__(self, journal: LeaseJournal, pace: Pace, on_stored: Callable[[], object]) -> None:
        self.journal = journal
        self.interval = Interval()
        self.ledger = ChangeLedger({})
        self.troubles: dict[int, Isolation] = {}
        """By lane."""
        self.crashes = 0
        """Unclean losses in a row, here."""
        self.stored_at = instant()
        self.calls_unstored = 0
        """Calls that returned and are not stored yet: checkpoints may be thinned out."""
        self._pace = pace
        self._on_stored = on_stored
        self._watch: dict[int, int] = {}
        self._whole = True
        self._noted: Troubles | None = None
        self._last: datetime | None = None
        self._storing = asyncio.Lock()
        self._closed = False
        self._in_doubt = False
        self.lanes = self._fresh_lanes(1)

    async def open(self, *, again: bool = False) -> None:
        """Read the state of the last owner, or with `again` of the former worker on this host."""
        if again:
            await self.journal.settle()
        stored = await self.journal.open()
        self.interval, self.crashes = stored.interval, stored.crashes
        self.ledger = ChangeLedger(stored.positions, stored.done)
        self.troubles = stored.troubles.split(self._pace.lanes)
        self._whole, self._watch = bool(stored.troubles.until), stored.troubles.watch
        self._noted = stored.troubles if stored.troubles != Troubles() else None

    def close(self) -> None:
        """Refuse late calls: the next worker has its own view of what is finished."""
        self._closed = True

    def begin(self, lineages: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """Stand in the ranges that there are now; return the positions."""
        self.ledger = self.ledger.over(lineages)
        over = ((lane, one.over(lineages)) for lane, one in self.troubles.items())
        self.troubles = {lane: trouble for lane, trouble in over if trouble is not None}
        self._watch = inherited(self._watch, lineages)
        return self.ledger.positions

    def restart(self) -> None:
        """Drop changes that were read and not finished; they are read again."""
        self.begin({one: [one] for one in self.ledger.read})

    def spread(self) -> Lanes:
        """Begin with empty lanes; trouble of the complete lease is worked off by one lane."""
        self.lanes = self._fresh_lanes(1 if self.whole_trouble else self._pace.lanes)
        self._whole = self.lanes.count == 1
        return self.lanes

    def _fresh_lanes(self, count: int) -> Lanes:
        pace = self._pace
        return Lanes(
            self.ledger, count, max_items=pace.max_items, max_bytes=pace.max_bytes,
            atomic=pace.atomic_groups,
        )  # fmt: skip

    @property
    def whole_trouble(self) -> bool:
        """Whether the complete lease is in trouble, not single lanes of it."""
        return self._whole and bool(self.troubles)

    def go_one_by_one(self, until: Mapping[int, int]) -> None:
        """Deliver one by one, to find the change that killed a process more than once."""
        whole = self.troubles.get(0) if self.whole_trouble else None
        self.troubles = {0: (whole or Isolation(until={})).one_by_one(until)}
        self._whole, self._watch = True, {}

    def confine(self, bound: Mapping[int, int]) -> None:
        """Let trouble end where a bounded run ends."""
        self.troubles = {lane: one.within(bound) for lane, one in self.troubles.items()}

    def watch(self, until: Mapping[int, int]) -> None:
        """Count another crash as one more until all of this is behind."""
        self._watch = dict(until)

    @property
    def watched(self) -> bool:
        """Whether a crash was noted, and where calls were then is not behind yet."""
        return bool(self._watch)

    @property
    def behind(self) -> bool:
        """Whether the stored position lags behind the progress, or soon will."""
        return bool(self.calls_unstored or self.ledger.in_flight) or self.ledger.is_ahead

    def units(self, changes: Sequence[Change[Any]]) -> list[Key]:
        """Return the keys that isolation can separate: each change, or each atomic group."""
        if not self._pace.atomic_groups:
            return [(change.lsn, change.ordinal) for change in changes]
        return sorted({(change.lsn, 0) for change in changes})

    def size_of(self, changes: Sequence[Change[Any]], part: Sequence[Key]) -> int:
        """Return how many of the changes a part covers, which begins where they do."""
        if not self._pace.atomic_groups:
            return len(part)
        return sum(change.lsn <= part[-1][0] for change in changes)

    def finish(self, run: ChangeRun, change: Change[Any] | None = None) -> bool:
        """Record that a call's changes are finished, or those up to one; True if all are."""
        self._check_out(run)
        size = len(run.changes)
        if change is not None:
            size = sum((c.lsn, c.ordinal) <= (change.lsn, change.ordinal) for c in run.changes)
        return self._finish(run, size)

    def _finish(self, run: ChangeRun, size: int) -> bool:
        if not size:
            return False
        whole = size == len(run.changes)
        self._last = run.changes[size - 1].ts
        self.ledger.finish(run, size)
        self.troubles = self._without(run, whole=whole)
        self.lanes.release()
        return whole

    async def flush(self, *, relaxed: bool = False) -> None:
        """Store finished changes, if that is not stored yet.

        `relaxed` is for writes that no caller waits for: a server crash right after may lose them,
        and the changes come again.
        """
        async with self._storing:
            await self._store(relaxed=relaxed)

    async def confirm_in(self, tx: Transaction, run: ChangeRun) -> Moved | None:
        """Store a call's changes as finished in a transaction; `committed` or `undone` follows.

        In order, the position is moved. Else the changes are remembered, and writes of others need
        not be waited for: a call that holds a connection must not wait for one that needs one.
        """
        self._check_out(run)
        in_order = self.lanes.count == 1 and self.ledger.unconfirmed == 1
        if not in_order or self._storing.locked():
            await self.journal.remember(tx, _done(run))
            return None
        await self._storing.acquire()
        try:
            snapshot = self.ledger.unstored(run)
            noted = self._note(snapshot.positions, self._without(run))
            await self.journal.checkpoint(snapshot, run.changes[-1].ts, noted, tx)
        except BaseException:
            self._storing.release()
            raise
        return Moved(snapshot, noted)

    def committed(self, run: ChangeRun, moved: Moved | None) -> None:
        """The transaction of `confirm_in` has been committed."""
        if moved is None:
            self.ledger.remember(_done(run))
        self.finish(run)
        if moved is not None:
            self._stored(moved.snapshot, moved.noted)
            self._storing.release()

    def undone(self, moved: Moved | None, *, in_doubt: bool = False) -> None:
        """The transaction of `confirm_in` was not committed, or its outcome is unknown.

        In the second case the position may have moved, and storing this one would move it back.
        """
        self._in_doubt = self._in_doubt or (in_doubt and self.lanes.count == 1)
        if moved is not None:
            self._storing.release()

    async def fail(self, run: ChangeRun, error: Exception, limit: int | None) -> Isolation:
        """Count a failed call; unless that condemns its only change, store the count."""
        async with self._storing:
            await self._store()  # the changes finished before it
            trouble = self.troubles.get(run.lane) or Isolation(until={run.range_id: run.end})
            trouble = trouble.failed(self.units(run.changes), limit)
            if not trouble.condemned(limit):
                troubles = self._with(run.lane, trouble)
                noted = self._note(self.ledger.stored, troubles)
                attempts = max(one.attempts for one in troubles.values())
                await self.journal.failed(attempts, error, noted)
                self.troubles, self._noted = troubles, noted
        return trouble

    def postpone(self, run: ChangeRun) -> None:
        """Have a call repeated later, with no more changes than before."""
        self.troubles.setdefault(run.lane, Isolation(until={run.range_id: run.end}))

    async def bury(
        self, run: ChangeRun, cause: FailureCause, handler: str, *, block: bool
    ) -> list[asyncpg.Record]:
        """Dead-letter the changes of a run and move past them; return the dead letters' rows."""
        async with self._storing:
            run.pinned = True
            snapshot = self.ledger.unstored(run)
            noted = self._note(snapshot.positions, self._without(run))
            rows = await self.journal.bury(
                run.changes, cause, snapshot, noted, handler=handler, block=block
            )
            self._finish(run, len(run.changes))
            self._stored(snapshot, noted)
        return rows

    async def mark(self, lane: int, key: Key | None) -> None:
        """Store which change a call is about to be made with, or that none is."""
        async with self._storing:
            marked = self._with(lane, self.troubles[lane].mark(key))
            noted = self._note(self.ledger.stored, marked)
            await self.journal.mark(noted)
            self.troubles, self._noted = marked, noted

    async def leave(self, lane: int, range_id: int) -> None:
        """Leave a range in which nothing is left of the batch in trouble."""
        self.troubles = self._with(lane, self.troubles[lane].passed(range_id, through=True))
        await self.flush()

    def forgive(self, lane: int) -> None:
        """Forget the trouble of a lane: its batch returned, and may be confirmed later."""
        self.troubles.pop(lane, None)

    async def _store(self, *, relaxed: bool = False) -> None:
        self._check()
        snapshot = self.ledger.unstored()
        noted = self._note(snapshot.positions, self.troubles)
        if snapshot.positions == self.ledger.stored and not snapshot.done and noted == self._noted:
            return
        calls = self.calls_unstored
        await self.journal.checkpoint(snapshot, self._last, noted, relaxed=relaxed)
        self._stored(snapshot, noted)
        self.calls_unstored -= calls

    def _stored(self, snapshot: LedgerSnapshot, noted: Troubles | None) -> None:
        self.ledger.store(snapshot)
        self.stored_at, self._noted = instant(), noted
        self._watch = noted.watch if noted else {}
        if noted is None:
            self.crashes = 0
        self._on_stored()

    def _note(
        self, positions: Mapping[int, int], troubles: Mapping[int, Isolation]
    ) -> Troubles | None:
        watch = {one: lsn for one, lsn in self._watch.items() if positions.get(one, 0) < lsn}
        return Troubles.note(troubles, self.lanes.count, watch)

    def _without(self, run: ChangeRun, *, whole: bool = True) -> dict[int, Isolation]:
        """The troubles that are left when a run is done; only parts of them change anything."""
        trouble = self.troubles.get(run.lane)
        if trouble is None or not run.pinned:
            return self.troubles
        through = whole and self._through(run, trouble)
        return self._with(run.lane, trouble.passed(run.range_id, through=through))

    def _through(self, run: ChangeRun, trouble: Isolation) -> bool:
        """Whether nothing else is left of the batch in trouble in the range of a part of it."""
        until = trouble.until.get(run.range_id, 0)
        return self.ledger.read[run.range_id] >= until and not self.lanes.has_until(
            run.lane, run.range_id, until
        )

    def _with(self, lane: int, trouble: Isolation | None) -> dict[int, Isolation]:
        rest = {one: other for one, other in self.troubles.items() if one != lane}
        return rest if trouble is None else {**rest, lane: trouble}

    def _check_out(self, run: ChangeRun) -> None:
        self._check()
        if not run.out:
            raise Conflict("this call failed, and its changes come again; confirm them then")

    def _check(self) -> None:
        if self._in_doubt:
            raise LeaseStoreError(
                "whether a transaction moved the position is unknown; the lease starts again"
                " from the stored position"
            )
        if self._closed:
            raise LeaseLost(
                "this batch was abandoned, because the store failed or the lease was released;"
                " it is delivered again"
            )


def _done(run: ChangeRun) -> list[Done]:
    return [(run.range_id, change.lsn, change.ordinal) for change in run.changes]
