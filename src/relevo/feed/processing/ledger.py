"""The ledger of a lease: changes read, in flight, finished and stored. Pure.

Changes are in flight as runs: some changes of one range in the order of its log. The position to
store for a range is the highest below which nothing is in flight. Changes finished above it are
remembered, so that they are not delivered again: lanes, parts of groups, transactions and late
confirmations all finish in another order than they were read in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from relevo.feed.processing.isolation import inherited

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from relevo.feed.model import Change
    from relevo.feed.processing.isolation import Key

Done = tuple[int, int, int]
"""Range, LSN and ordinal of a change."""


class ChangeRun:
    """Some changes of one range, in order, that are in flight together."""

    __slots__ = ("before", "changes", "lane", "out", "pinned", "range_id", "read_at", "read_for")

    def __init__(self, range_id: int, before: int, changes: Sequence[Change[Any]]) -> None:
        self.range_id = range_id
        self.before = before
        """The position behind which its first change is the first of this run."""
        self.changes = changes
        self.lane = 0
        self.out = False
        """Whether it is in the hands of the handler."""
        self.pinned = False
        """Whether it is delivered as a part of a batch in trouble."""
        self.read_at = 0.0
        self.read_for = 0.0
        """When it was read, and how long that took, in seconds."""

    @property
    def end(self) -> int:
        """The LSN of the last change."""
        return self.changes[-1].lsn

    def piece(self, changes: Sequence[Change[Any]], before: int | None = None) -> ChangeRun:
        """Return another run like this one."""
        made = ChangeRun(self.range_id, self.before if before is None else before, changes)
        made.lane, made.read_at, made.read_for = self.lane, self.read_at, self.read_for
        return made


class LedgerSnapshot(Struct, frozen=True, kw_only=True):
    """Positions to store, and the changes finished above them."""

    positions: dict[int, int]
    done: tuple[Done, ...] = ()
    """Finished above the positions, and not stored as such yet."""
    tidy: bool = False
    """Whether the store may hold finished ones that the positions have passed."""


class ChangeLedger:
    """The changes of one lease, by range."""

    def __init__(self, positions: Mapping[int, int], done: Iterable[Done] = ()) -> None:
        self.read = dict(positions)
        """Up to where changes were read, by range."""
        self.stored = dict(positions)
        """The positions that the store has."""
        self.in_flight = 0
        """Changes that were read and are not finished."""
        self._runs: dict[int, dict[ChangeRun, None]] = {position: {} for position in positions}
        self._remembered: set[Done] = set(done)
        """Finished ones that the store holds."""
        self._unsaved: set[Done] = set()
        """Finished ones above the positions that it does not hold yet."""
        self._done: dict[int, set[Key]] = {position: set() for position in positions}
        self._forgotten = dict(positions)
        """Up to where finished ones were forgotten, by range."""
        for range_id, lsn, ordinal in self._remembered:
            if lsn > positions.get(range_id, 0):
                self._done.setdefault(range_id, set()).add((lsn, ordinal))

    def over(self, lineages: Mapping[int, Sequence[int]]) -> ChangeLedger:
        """Return a ledger with nothing in flight over the ranges that there are now."""
        made = ChangeLedger(dict.fromkeys(lineages, 0) | inherited(self.positions, lineages))
        made._remembered, made.stored = self._remembered, self.stored
        for one, line in lineages.items():
            keys = {key for i in line for key in self._done.get(i, ())}
            made._done[one] = {key for key in keys if key[0] > made.read[one]}
            made._unsaved.update((one, *key) for key in made._done[one])
        made._unsaved -= made._remembered
        return made

    @property
    def positions(self) -> dict[int, int]:
        """The positions that may be stored."""
        return {one: self._position(one) for one in self.read}

    @property
    def is_ahead(self) -> bool:
        """Whether there is progress that is not stored yet."""
        return bool(self._unsaved) or self.positions != self.stored

    @property
    def finished_above(self) -> int:
        """How many changes are finished above the positions."""
        return sum(map(len, self._done.values()))

    @property
    def unconfirmed(self) -> int:
        """How many calls were made whose changes are not all finished."""
        return sum(run.out for runs in self._runs.values() for run in runs)

    def unconfirmed_in(self, lane: int) -> int:
        """The same for one lane."""
        return sum(run.out for runs in self._runs.values() for run in runs if run.lane == lane)

    def undone(self, range_id: int, changes: Sequence[Change[Any]]) -> Sequence[Change[Any]]:
        """Return the changes that were not finished before, here or by an owner before."""
        done = self._done[range_id]
        if not done:
            return changes
        return [c for c in changes if (c.lsn, c.ordinal) not in done]

    def add(self, run: ChangeRun) -> ChangeRun:
        """Take in a run that was read."""
        self._runs[run.range_id][run] = None
        self.in_flight += len(run.changes)
        return run

    def skip(self, range_id: int, position: int) -> None:
        """Everything of this lease up to `position` was read."""
        self.read[range_id] = max(self.read[range_id], position)
        self._forget_below(range_id)

    def cut(self, run: ChangeRun, size: int) -> tuple[ChangeRun, ChangeRun | None]:
        """Cut a run after its first `size` changes; the rest is None if nothing remains."""
        if size >= len(run.changes):
            return run, None
        left, right = run.changes[:size], run.changes[size:]
        pieces = run.piece(left), run.piece(right, right[0].lsn - 1)
        self._replace([run], pieces)
        return pieces

    def join(self, runs: Sequence[ChangeRun]) -> ChangeRun:
        """Make one run of several of the same range and lane."""
        if len(runs) == 1:
            return runs[0]
        joined = runs[0].piece([change for run in runs for change in run.changes])
        self._replace(runs, [joined])
        return joined

    def keep(self, run: ChangeRun, keys: Collection[Key]) -> ChangeRun | None:
        """Drop changes that are no longer in the log: an item that changed since comes later."""
        left = [c for c in run.changes if (c.lsn, c.ordinal) in keys]
        if len(left) == len(run.changes):
            return run
        if not left:
            self._replace([run], [])
            return None
        kept = run.piece(left)
        self._replace([run], [kept])
        return kept

    def finish(self, run: ChangeRun, size: int | None = None) -> None:
        """The first `size` changes of a run are finished, or all; never taken back."""
        changes, range_id = run.changes, run.range_id
        if run not in self._runs.get(range_id, ()):
            return
        if size is None or size >= len(changes):
            size = len(changes)
            del self._runs[range_id][run]
        else:
            run.changes = changes[size:]
            run.before = run.changes[0].lsn - 1
        self.in_flight -= size
        above = self._above(range_id, changes[:size])
        self._done[range_id].update(above)
        self._unsaved.update({(range_id, *key) for key in above} - self._remembered)
        self._forget_below(range_id)

    def unstored(self, finished: ChangeRun | None = None) -> LedgerSnapshot:
        """Return what to store, as if `finished` were finished."""
        positions = {one: self._position(one, finished) for one in self.read}
        done = self._unsaved
        if finished is not None:
            above = self._above(finished.range_id, finished.changes, finished)
            done = {d for d in done if d[1] > positions[d[0]]}
            done |= {(finished.range_id, *key) for key in above} - self._remembered
        return LedgerSnapshot(
            positions=positions, done=tuple(sorted(done)), tidy=bool(self._remembered)
        )

    def store(self, snapshot: LedgerSnapshot) -> None:
        """Record that a snapshot is stored."""
        self._unsaved.difference_update(snapshot.done)
        self._remembered.update(snapshot.done)
        if self._remembered and self.stored != snapshot.positions:
            self._remembered = {
                done for done in self._remembered
                if done[1] > snapshot.positions.get(done[0], done[1])
            }  # fmt: skip
        self.stored = snapshot.positions

    def remember(self, done: Collection[Done]) -> None:
        """The store holds these as finished now."""
        self._remembered.update(done)
        self._unsaved.difference_update(done)

    def _position(self, range_id: int, but: ChangeRun | None = None) -> int:
        runs = self._runs[range_id]
        return min((run.before for run in runs if run is not but), default=self.read[range_id])

    def _above(
        self, range_id: int, changes: Sequence[Change[Any]], but: ChangeRun | None = None
    ) -> list[Key]:
        """Return the keys of finished changes that the position does not cover."""
        position = self._position(range_id, but)
        if not changes or changes[-1].lsn <= position:
            return []
        return [(c.lsn, c.ordinal) for c in changes if c.lsn > position]

    def _forget_below(self, range_id: int) -> None:
        if not self._done[range_id]:
            return
        position = self._position(range_id)
        if position > self._forgotten[range_id]:
            self._forgotten[range_id] = position
            self._done[range_id] = {key for key in self._done[range_id] if key[0] > position}
            self._unsaved = {d for d in self._unsaved if d[0] != range_id or d[1] > position}

    def _replace(self, old: Iterable[ChangeRun], new: Iterable[ChangeRun]) -> None:
        for run in old:
            del self._runs[run.range_id][run]
            self.in_flight -= len(run.changes)
        for run in new:
            self.add(run)
