"""Spreads what was read over lanes by partition key, and hands it out in batches. Pure.

Changes of one key are always in one lane, and a lane hands out one batch after the other: so order
per key is kept. With one lane a batch is what was read at once. What one call wrote under several
keys is split by lane, unless groups are atomic: then it waits until nothing else is in flight, and
everything behind it waits for it.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

from relevo.feed.processing.ledger import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relevo.feed.model import Change
    from relevo.feed.processing.ledger import Ledger


def lane_of(key: str, count: int) -> int:
    """Return the lane of a partition key; the same on every host."""
    return crc32(key.encode()) % count if count > 1 else 0


class Lanes:
    """What was read and is not handed out yet, by lane."""

    def __init__(
        self, ledger: Ledger, count: int, *, max_items: int, max_bytes: int, atomic: bool = False
    ) -> None:
        self.count = count
        self._ledger = ledger
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._atomic = atomic
        self._queues: list[deque[Run]] = [deque() for _ in range(count)]
        self._held: deque[tuple[bool, list[Run]]] = deque()
        self._held_changes = 0
        self._alone = False

    def waiting(self, lane: int) -> int:
        """How many runs a lane has before it."""
        return len(self._queues[lane])

    def add(
        self, range_id: int, changes: Sequence[Change[Any]], position: int,
        *, read_at: float = 0.0, read_for: float = 0.0,
    ) -> None:  # fmt: skip
        """Take in what was read of a range, up to `position`; what was finished before is left."""
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
        """Let the lanes have what need not wait; called whenever something was finished."""
        while self._held:
            alone, runs = self._held[0]
            if (alone or self._alone) and self._ledger.in_flight > self._held_changes:
                return
            self._held.popleft()
            self._alone = alone
            for run in runs:
                self._held_changes -= len(run.changes)
                self._queues[run.lane].append(run)

    def take(self, lane: int) -> Run | None:
        """Hand out the next batch of a lane: whole groups, as far as they are in this lane."""
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

    def take_until(self, lane: int, range_id: int, until: int) -> Run | None:
        """Hand out all that a lane has of a range up to an LSN: what is left of a batch."""
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

    def put_back(self, run: Run | None) -> None:
        """Take back what was handed out and is not finished; it comes first."""
        if run is not None:
            run.out = run.pinned = False
            self._queues[run.lane].appendleft(run)

    def _first_groups(self, runs: Sequence[Run]) -> int:
        """How many changes make a batch: as many as asked for, then to the end of the group."""
        changes = [change for run in runs for change in run.changes]
        size = min(self._max_items, len(changes))
        while size < len(changes) and changes[size].lsn == changes[size - 1].lsn:
            size += 1
        return size

    def _spread(
        self, range_id: int, before: int, changes: Sequence[Change[Any]]
    ) -> Iterable[tuple[bool, list[Run]]]:
        """Yield runs by lane, and whether they have to be alone in flight."""
        if self.count == 1:
            if changes:
                yield False, [Run(range_id, before, changes)]
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
    def _runs(range_id: int, parts: dict[int, tuple[int, list[Change[Any]]]]) -> list[Run]:
        made = []
        for lane, (before, changes) in parts.items():
            run = Run(range_id, before, changes)
            run.lane = lane
            made.append(run)
        return made


_ordinal = attrgetter("ordinal")


def _bytes(run: Run) -> int:
    return sum(len(change.raw or "") for change in run.changes)
