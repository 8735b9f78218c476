"""How many jobs a lane holds ahead: as many as it needs, as few as fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.running.lanes import AHEAD_BYTES_MAX, AHEAD_MAX, Appetite


def hungry(slots: int, times: int = 20) -> Appetite:
    appetite = Appetite(slots)
    for _ in range(times):
        appetite.hungry()
    return appetite


def test_a_lane_holds_what_its_slots_can_run_until_it_is_found_idle() -> None:
    appetite = Appetite(20)
    assert appetite.room(0) == 20
    assert appetite.room(20) == 0
    appetite.hungry()
    assert appetite.room(20) == 20
    appetite.full()
    assert appetite.room(20) == 0


def test_half_is_claimed_while_the_other_half_runs() -> None:
    appetite = hungry(20)
    assert appetite.most == AHEAD_MAX
    assert appetite.room(0) == appetite.room(AHEAD_MAX // 2) == AHEAD_MAX // 2
    assert appetite.room(AHEAD_MAX // 2 + 1) == 0


def test_of_large_jobs_fewer_are_held() -> None:
    appetite = hungry(4)
    appetite.weigh(10, 10 * AHEAD_BYTES_MAX // 64)
    assert appetite.most == 64
    appetite.hungry()
    assert appetite.most == 64
    appetite.weigh(10, 10 * AHEAD_BYTES_MAX)
    assert appetite.most == 4  # its slots it always fills
    appetite.weigh(10, 0)
    for _ in range(20):
        appetite.hungry()
    assert appetite.most == AHEAD_MAX


@given(
    slots=st.integers(1, 5_000),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 2**30))),
    held=st.integers(0, 6_000),
)
def test_room_is_never_more_than_fits(slots: int, steps: list[int | None], held: int) -> None:
    appetite = Appetite(slots)
    for size in steps:
        appetite.hungry() if size is None else appetite.weigh(100, size)
    room = appetite.room(held)
    assert room >= 0
    assert held + room <= max(held, slots, AHEAD_MAX)
    assert (room > 0) >= (held < slots)  # a slot never waits for the sake of few statements


@given(
    slots=st.integers(1, 100),
    seconds=st.lists(st.floats(0.00005, 10.0), min_size=1, max_size=30),
)
def test_no_more_is_held_than_begins_in_time(slots: int, seconds: list[float]) -> None:
    appetite = Appetite(slots, begin_within=0.1)
    for each in seconds:
        appetite.note_run(each)
        appetite.hungry()
    assert appetite.most <= max(slots, slots * 0.1 / seconds[-1])


def test_a_lane_that_never_claims_ahead_holds_its_slots() -> None:
    appetite = Appetite(4, begin_within=0.0)
    for _ in range(5):
        appetite.hungry()
        appetite.note_run(0.001)
    assert appetite.most == 4
    assert appetite.room(3) == 1


def test_quick_runs_are_claimed_ahead_again_after_a_slow_one() -> None:
    appetite = Appetite(4, begin_within=0.1)
    appetite.note_run(5.0)
    appetite.hungry()
    assert appetite.most == 4
    for _ in range(200):
        appetite.note_run(0.001)
    for _ in range(10):
        appetite.hungry()
    assert appetite.most > 100
