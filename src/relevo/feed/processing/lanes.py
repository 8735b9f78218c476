"""Spreads changes over lanes by partition key, and hands them out in batches. Pure.

Changes of one key are always in one lane, and a lane hands out one batch after the other: so order
per key is kept. With one lane a batch is one read. A write to several keys is split by lane, unless
groups are atomic: then it waits until nothing else is in flight, and all later changes wait for it.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

from relevo.feed.processing.ledger import ChangeRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.feed.model import Change
    from relevo.feed.processing.ledger import ChangeLedger


def lane_of(key: str, count: int) -> int:
    """Return the lane of a partition key; the same on every host."""
    return crc32(key.encode()) % count if count > 1 else 0


class Lanes:
    """Changes that were read and not handed out yet, by lane."""

    def __init__(
        self,
        ledger: ChangeLedger,
        count: int,
        *,
        max_items: int,
        max_bytes: int,
        atomic: bool = False,
    ) -> None:
        self.count = count
        self._ledger = ledger
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._atomic = atomic
        self._queues: list[deque[ChangeRun]] = [deque() for _ in range(count)]
        self._held: deque[tuple[bool, list[ChangeRun]]] = deque()
        self._held_changes = 0
        self._alone = False

    def waiting(self, lane: int) -> int:
        """How many runs a lane has before it."""
        return len(self._queues[lane])

    def add(
        self, range_id: int, changes: Sequence[Change[Any]], position: int,
        *, read_at: float = 0.0, read_for: float = 0.0,
    ) -> None:  # fmt: skip
        """Add changes of a range, read up to `position`; leaves out those finished before."""
        before = self._ledger.read[range_id]
        changes = self._ledger.undone(range_id, changes)
        for alone, runs in self._spread(range_id, before, changes):
            for run in runs:
                run.read_at, run.read_for = read_at, read_for
                self._held_changes += len(self._ledger.add(run).changes)
            self._held.append((alone, runs))
        self._ledger.skip(range_id, position)
        self.release()

    def release(self) -> None:
        """Pass on held changes that need not wait any more; called after every finished run."""
        while self._held:
            alone, runs = self._held[0]
            if (alone or self._alone) and self._ledger.in_flight > self._held_changes:
                return
            self._held.popleft()
            self._alone = alone
            for run in runs:
                self._held_changes -= len(run.changes)
                self._queues[run.lane].append(run)

    def take(self, lane: int) -> ChangeRun | None:
        """Hand out the next batch of a lane; it does not cut groups."""
        queue = self._queues[lane]
        if not queue:
            return None
        runs = [queue.popleft()]
        if self.count == 1:
            return runs[0]
        items, size = len(runs[0].changes), _bytes(runs[0])
        while queue and queue[0].range_id == runs[0].range_id:
            items, size = items + len(queue[0].changes), size + _bytes(queue[0])
            if items > self._max_items or size > self._max_bytes:
                break
            runs.append(queue.popleft())
        run, rest = self._ledger.cut(self._ledger.join(runs), self._first_groups(runs))
        self.put_back(rest)
        return run

    def take_until(self, lane: int, range_id: int, until: int) -> ChangeRun | None:
        """Hand out all changes of a lane and range up to an LSN: the rest of a batch."""
        queue = self._queues[lane]
        mine = [run for run in queue if run.range_id == range_id and run.changes[0].lsn <= until]
        if not mine:
            return None
        for run in mine:
            queue.remove(run)
        run = self._ledger.join(mine)
        size = sum(change.lsn <= until for change in run.changes)
        run, rest = self._ledger.cut(run, size)
        self.put_back(rest)
        return run

    def has_until(self, lane: int, range_id: int, until: int) -> bool:
        """Whether a lane has something of a range up to an LSN."""
        return any(
            run.range_id == range_id and run.changes[0].lsn <= until for run in self._queues[lane]
        )

    def put_back(self, run: ChangeRun | None) -> None:
        """Put an unfinished run back at the front of its lane."""
        if run is not None:
            run.out = run.pinned = False
            self._queues[run.lane].appendleft(run)

    def _first_groups(self, runs: Sequence[ChangeRun]) -> int:
        """How many changes make a batch: as many as asked for, then to the end of the group."""
        changes = [change for run in runs for change in run.changes]
        size = min(self._max_items, len(changes))
        while size < len(changes) and changes[size].lsn == changes[size - 1].lsn:
            size += 1
        return size

    def _spread(
        self, range_id: int, before: int, changes: Sequence[Change[Any]]
    ) -> Iterable[tuple[bool, list[ChangeRun]]]:
        """Yield runs by lane, and whether they have to be alone in flight."""
        if self.count == 1:
            if changes:
                yield False, [ChangeRun(range_id, before, changes)]
            return
        open_: dict[int, tuple[int, list[Change[Any]]]] = {}
        for lsn, group in groupby(changes, key=attrgetter("lsn")):
            by_lane: dict[int, list[Change[Any]]] = {}
            for change in group:
                by_lane.setdefault(lane_of(change.key, self.count), []).append(change)
            if self._atomic and len(by_lane) > 1:
                yield False, self._runs(range_id, open_)
                whole = sorted((c for part in by_lane.values() for c in part), key=_ordinal)
                yield True, self._runs(range_id, {min(by_lane): (before, whole)})
                open_ = {}
            else:
                for lane, part in by_lane.items():
                    open_.setdefault(lane, (before, []))[1].extend(part)
            before = lsn
        yield False, self._runs(range_id, open_)

    @staticmethod
    def _runs(range_id: int, parts: dict[int, tuple[int, list[Change[Any]]]]) -> list[ChangeRun]:
        made = []
        for lane, (before, changes) in parts.items():
            run = ChangeRun(range_id, before, changes)
            run.lane = lane
            made.append(run)
        return made


_ordinal = attrgetter("ordinal")


def _bytes(run: ChangeRun) -> int:
    return sum(len(change.raw or "") for change in run.changes)
