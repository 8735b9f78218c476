"""How a bad change is found among good ones."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from relevo.feed.processing.isolation import Isolation, Troubles

if TYPE_CHECKING:
    from relevo.feed.processing.isolation import Key

RANGE = 7


class Run:
    """Plays a batch through isolation as a worker does; `bad` changes always fail."""

    def __init__(self, keys: list[Key], bad: set[Key], limit: int) -> None:
        self.left = keys
        self.bad = bad
        self.limit = limit
        self.whole_calls = 0
        self.calls = 0
        self.done: list[Key] = []
        self.buried: list[Key] = []
        self.state: Isolation | None = None

    def play(self, *, vanish: set[Key] = frozenset(), restart: bool = False) -> None:  # type: ignore[assignment]
        while self.left:
            part = self.state.part(self.left) if self.state else self.left
            if self.state is not None and self.state.closely:
                self.calls += 1
            else:
                self.whole_calls += 1
            self.step(list(part))
            self.left = [key for key in self.left if key not in vanish]
            if restart and self.state is not None:
                stored = msgspec.json.encode(self.state)
                self.state = msgspec.json.decode(stored, type=Isolation)

    def step(self, part: list[Key]) -> None:
        assert part == self.left[: len(part)]  # in order, nothing skipped
        assert part
        through = len(part) == len(self.left)
        if not self.bad & set(part):
            self.done += part
            self.left = self.left[len(part) :]
            self.state = self.state and self.state.passed(RANGE, through=through)
            return
        state = self.state or Isolation(until={RANGE: self.left[-1][0]})
        self.state = state.failed(part, self.limit)
        if self.state.condemned(self.limit):
            assert len(part) == 1
            self.buried += part
            self.left = self.left[1:]
            self.state = self.state.passed(RANGE, through=through)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Key], set[Key]]:
    groups = draw(st.lists(st.integers(1, 4), min_size=1, max_size=60))
    keys = [(lsn * 3, ordinal) for lsn, size in enumerate(groups, 1) for ordinal in range(size)]
    bad = draw(st.sets(st.sampled_from(keys), max_size=8))
    return keys, bad


@given(batches(), st.integers(1, 6), st.booleans())
def test_only_bad_changes_are_given_up_and_within_the_bound(
    batch: tuple[list[Key], set[Key]], limit: int, restart: bool
) -> None:  # P8
    keys, bad = batch
    run = Run(keys, bad, limit)
    run.play(restart=restart)
    assert run.buried == sorted(bad)
    assert run.done == [key for key in keys if key not in bad]
    assert run.calls <= len(bad) * (2 * ceil(log2(len(keys))) + limit)
    assert run.whole_calls <= max(limit, 1)
    assert run.state is None


@given(batches(), st.integers(1, 4), st.data())
def test_changes_that_vanish_meanwhile_harm_nobody(
    batch: tuple[list[Key], set[Key]], limit: int, data: st.DataObject
) -> None:  # 8.6, P8
    keys, bad = batch
    vanish = data.draw(st.sets(st.sampled_from(keys)))
    run = Run(keys, bad, limit)
    run.play(vanish=vanish)
    assert set(run.buried) <= bad
    assert set(run.done) | set(run.buried) | vanish == set(keys)
    assert run.calls <= len(bad) * (2 * ceil(log2(len(keys))) + limit)


def test_a_single_change_is_given_up_after_as_many_calls_as_allowed() -> None:
    run = Run([(3, 1)], {(3, 1)}, 5)
    run.play()
    assert (run.whole_calls, run.calls, run.buried) == (5, 0, [(3, 1)])


def test_without_a_limit_the_whole_batch_is_tried_for_ever() -> None:  # 10.1
    keys = [(1, 1), (2, 1)]
    state = Isolation(until={RANGE: 2})
    for _ in range(100):
        assert state.part(keys) == keys
        state = state.failed(keys, None)
        assert not state.condemned(None)
    assert state.attempts == 100


def test_failures_among_neighbours_do_not_count_against_the_one_that_is_left() -> None:  # P8
    state = Isolation(until={RANGE: 9})
    for _ in range(4):
        state = state.failed([(1, 1), (2, 1)], 5)
    state = state.failed([(2, 1)], 5)  # its neighbour was superseded meanwhile
    assert state.failures == 1
    assert not state.condemned(5)


def test_after_crashes_changes_go_one_by_one_through_every_range() -> None:  # P10
    state = Isolation(until={}).one_by_one({1: 10, 2: 20})
    assert state.part([(4, 1), (5, 1)]) == [(4, 1)]
    assert state.mark((4, 1)).marked == (4, 1)
    after = state.mark((4, 1)).passed(1)
    assert after is not None
    assert after.marked is None
    after = after.passed(1, through=True)
    assert after is not None
    assert (after.singles, after.until) == (True, {2: 20})
    assert after.passed(2, through=True) is None


def test_a_range_that_was_split_leaves_its_trouble_to_its_children() -> None:
    state = Isolation(until={1: 10}, ends=((9, 4),))
    after = state.over({5: [5, 1], 6: [6, 1]})
    assert after is not None
    assert after.until == {5: 10, 6: 10}
    assert after.ends == ((9, 4),)
    assert state.over({3: [3]}) is None


def test_the_trouble_of_each_lane_is_stored_and_found_again() -> None:  # P3, P8
    lanes = {1: Isolation(until={1: 10}, attempts=2), 3: Isolation(until={1: 12}, ends=((9, 4),))}
    noted = Troubles.note(lanes, 4, {1: 30})
    assert noted is not None
    stored = msgspec.json.decode(msgspec.json.encode(noted), type=Troubles)
    assert stored == noted
    assert (stored.split(4), stored.split(8)) == (lanes, {})
    assert stored.watch == {1: 30}


def test_trouble_of_the_whole_is_worked_off_by_one_lane() -> None:  # P10
    whole = Isolation(until={1: 10}, singles=True, marked=(3, 0))
    noted = Troubles.note({0: whole}, 1, {})
    assert noted is not None
    stored = msgspec.json.decode(msgspec.json.encode(noted), type=Troubles)
    assert stored.marked == (3, 0)  # where the count of crashes looks for it
    assert stored.split(8) == {0: whole}
    assert Troubles.note({}, 4, {}) is None
