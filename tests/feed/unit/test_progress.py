"""The ledger of a lease, played against a plain model of what was read and finished."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relevo.feed.model import Change
from relevo.feed.processing.lanes import Lanes, lane_of
from relevo.feed.processing.ledger import ChangeLedger, ChangeRun

RANGE = 1
NOW = datetime(2031, 5, 30, tzinfo=UTC)
Key = tuple[int, int]


def change(lsn: int, ordinal: int = 0, key: str = "a") -> Change[Any]:
    return Change(
        incarnation="i", origin=RANGE, lsn=lsn, ordinal=ordinal, stamp=NOW.timestamp(),
        id=f"{lsn}-{ordinal}", key=key, raw="{}",
    )  # fmt: skip


def read(ledger: ChangeLedger, *lsns: int) -> ChangeRun:
    run = ledger.add(ChangeRun(RANGE, ledger.read[RANGE], [change(lsn) for lsn in lsns]))
    ledger.skip(RANGE, lsns[-1])
    run.out = True
    return run


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_the_position_never_passes_an_unconfirmed_change(
    sizes: list[int], data: st.DataObject
) -> None:  # P6
    ledger, runs, last = ChangeLedger({RANGE: 0}), [], 0
    for size in sizes:
        runs.append(read(ledger, *range(last + 1, last + size + 1)))
        last += size
    starts = {run: run.before for run in runs}
    before = 0
    for run in data.draw(st.permutations(runs)):
        ledger.finish(run)
        del starts[run]
        assert ledger.positions[RANGE] == min(starts.values(), default=last)
        assert ledger.positions[RANGE] >= before  # never backwards
        before = ledger.positions[RANGE]
    assert ledger.unconfirmed == ledger.in_flight == ledger.finished_above == 0


def test_a_part_of_a_batch_can_be_confirmed() -> None:  # 9.3
    ledger = ChangeLedger({RANGE: 0})
    first, second = read(ledger, 2, 4, 6), read(ledger, 8, 10)
    ledger.finish(second)
    assert ledger.unstored().done == ((RANGE, 8, 0), (RANGE, 10, 0))
    ledger.finish(first, 2)
    assert ledger.positions == {RANGE: 5}
    ledger.finish(first)
    assert ledger.positions == {RANGE: 10}
    assert ledger.unstored().done == ()


def test_what_is_as_good_as_finished_counts_for_what_is_stored_with_it() -> None:  # P5
    ledger = ChangeLedger({RANGE: 0})
    first, second = read(ledger, 2, 4), read(ledger, 6)
    assert ledger.unstored(first).positions == {RANGE: 4}
    assert ledger.unstored(second).positions == {RANGE: 0}
    assert ledger.unstored(second).done == ((RANGE, 6, 0),)
    assert ledger.positions == {RANGE: 0}


def test_foreign_changes_are_passed_over_only_when_nothing_is_open() -> None:
    ledger = ChangeLedger({RANGE: 0, 2: 0})
    read(ledger, 3)
    ledger.skip(RANGE, 8)
    ledger.skip(2, 8)
    assert ledger.positions == {RANGE: 0, 2: 8}


def test_ranges_that_were_split_leave_what_was_finished_to_their_children() -> None:  # F9, P7
    ledger = ChangeLedger({RANGE: 4}, [(RANGE, 6, 0), (RANGE, 3, 0)])
    made = ledger.over({5: [5, RANGE], 6: [6, RANGE]})
    assert made.positions == {5: 4, 6: 4}
    assert made.undone(5, [change(6), change(7)]) == [change(7)]
    assert made.unstored().done == ((5, 6, 0), (6, 6, 0))
    made.store(made.unstored())
    assert made.unstored().done == ()


class Owners(RuleBasedStateMachine):
    """Owners of a lease with lanes, one after the other; each knows only what was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Change[Any]] = []
        self.finished: dict[Key, int] = {}
        """Changes that a call returned from, and how often."""
        self.stored_finished: set[Key] = set()
        self.positions = {RANGE: 0}
        self.done: set[tuple[int, int, int]] = set()
        self.last: dict[str, Key] = {}
        self.count = 3
        self.atomic = False
        self.begin()

    def begin(self) -> None:
        self.ledger = ChangeLedger(self.positions, self.done)
        self.lanes = Lanes(
            self.ledger, self.count, max_items=3, max_bytes=10**6, atomic=self.atomic
        )
        self.running: dict[int, ChangeRun] = {}
        self.last = {}

    @rule(keys=st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4))
    def write(self, keys: list[str]) -> None:
        lsn = self.log[-1].lsn + 3 if self.log else 2
        self.log += [change(lsn, ordinal, key) for ordinal, key in enumerate(keys)]

    @rule(groups=st.integers(1, 4))
    def read_on(self, groups: int) -> None:
        left = [c for c in self.log if c.lsn > self.ledger.read[RANGE]]
        lsns = sorted({c.lsn for c in left})[:groups]
        if lsns:
            self.lanes.add(RANGE, [c for c in left if c.lsn in lsns], lsns[-1])

    @rule(lane=st.integers(0, 4))
    def call(self, lane: int) -> None:
        lane %= self.count
        if lane in self.running:
            return
        run = self.lanes.take(lane)
        if run is None:
            return
        run.out = True
        self.running[lane] = run
        lanes = {lane_of(c.key, self.count) for c in run.changes}
        if self.atomic:
            by_group = {c.lsn for c in run.changes}
            for lsn in by_group:  # F5: a group is whole
                group = [c for c in self.log if c.lsn == lsn and self.fresh(c)]
                mine = [c for c in run.changes if c.lsn == lsn]
                assert mine == group or len({lane_of(c.key, self.count) for c in group}) == 1
        else:
            assert lanes == {lane}
        for c in run.changes:
            key = (c.lsn, c.ordinal)
            assert key not in self.stored_finished  # P7: what is marked done is skipped
            assert key >= self.last.get(c.key, (0, 0))  # order per key
            others = [o for i, o in self.running.items() if i != lane]
            assert all(o.key != c.key for run in others for o in run.changes)  # P2

    def fresh(self, c: Change[Any]) -> bool:
        return (c.lsn, c.ordinal) not in self.stored_finished and c.lsn > self.positions[RANGE]

    @rule(lane=st.integers(0, 4), size=st.none() | st.integers(1, 3))
    def returned(self, lane: int, size: int | None) -> None:
        run = self.running.get(lane)
        if run is None:
            return
        changes = run.changes[: len(run.changes) if size is None else size]
        for c in changes:
            key = (c.lsn, c.ordinal)
            self.finished[key] = self.finished.get(key, 0) + 1
            self.last[c.key] = key
        if len(changes) == len(run.changes):
            del self.running[lane]
        self.ledger.finish(run, len(changes))
        self.lanes.release()

    @rule(lane=st.integers(0, 4))
    def failed(self, lane: int) -> None:
        if lane in self.running:
            self.lanes.put_back(self.running.pop(lane))

    @rule(lane=st.integers(0, 4), size=st.integers(1, 3))
    def tried_in_part(self, lane: int, size: int) -> None:
        if lane in self.running:
            run, rest = self.ledger.cut(self.running.pop(lane), size)
            self.lanes.put_back(rest)
            self.lanes.put_back(run)

    @rule()
    def store(self) -> None:
        snapshot = self.ledger.unstored()
        assert snapshot.positions[RANGE] >= self.positions[RANGE]  # L3
        self.positions = snapshot.positions
        self.done |= set(snapshot.done)
        if snapshot.tidy or snapshot.done:
            self.done = {d for d in self.done if d[1] > self.positions[RANGE]}
        self.ledger.store(snapshot)
        self.stored_finished = {
            (c.lsn, c.ordinal) for c in self.log if c.lsn <= self.positions[RANGE]
        } | {(lsn, ordinal) for _, lsn, ordinal in self.done}

    @rule(lane=st.integers(0, 4))
    def committed(self, lane: int) -> None:
        """A transaction of the user's: the done record takes the place of the position (9.5)."""
        run = self.running.pop(lane, None)
        if run is None:
            return
        for c in run.changes:
            key = (c.lsn, c.ordinal)
            self.finished[key] = self.finished.get(key, 0) + 1
            self.last[c.key] = key
            self.done.add((RANGE, *key))
            self.stored_finished.add(key)
        self.ledger.remember([(RANGE, c.lsn, c.ordinal) for c in run.changes])
        self.ledger.finish(run)
        self.lanes.release()

    @rule(count=st.integers(1, 5), atomic=st.booleans())
    def lose(self, count: int, atomic: bool) -> None:
        """The lease is lost; the next owner may have another number of lanes."""
        self.count, self.atomic = count, atomic
        self.begin()

    @precondition(lambda self: self.log)
    @rule()
    def drain(self) -> None:
        """Everything is delivered in the end, and then the position is at the end."""
        self.read_on(10**6)
        while self.ledger.in_flight:
            for lane in range(self.count):
                self.call(lane)
                self.returned(lane, None)
        assert {(c.lsn, c.ordinal) for c in self.log} <= self.finished.keys()  # P1
        assert self.ledger.positions[RANGE] == self.log[-1].lsn

    @invariant()
    def the_position_never_passes_an_unfinished_group(self) -> None:  # P7
        position = self.ledger.positions[RANGE]
        assert all((c.lsn, c.ordinal) in self.finished for c in self.log if c.lsn <= position)

    @invariant()
    def nothing_is_remembered_that_the_position_covers(self) -> None:
        snapshot = self.ledger.unstored()
        assert all(lsn > snapshot.positions[one] for one, lsn, _ in snapshot.done)
        assert all(key in self.finished for key in {(d[1], d[2]) for d in snapshot.done})


TestOwners = Owners.TestCase
