"""Rates hold in every window, also across restarts and changes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidValue, Overloaded
from relevo.governance.core.buckets import Buckets
from relevo.governance.core.lent_tokens import LentTokens
from relevo.governance.core.windows import Rate, Windows, WindowsState
from tests.conftest import examples

RATES = st.lists(
    st.builds(Rate, st.integers(1, 12), st.sampled_from([0.5, 1.0, 3.0, 10.0])),
    min_size=1, max_size=3,
).map(tuple)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "reserved", "reserve", "lend", "restart", "back"]),
        st.floats(0, 1.5),
        st.integers(1, 5),
    ),
    max_size=80,
)


def stored(windows: Windows) -> bytes:
    return msgspec.msgpack.encode(windows.state())


@settings(max_examples=examples(400))
@given(RATES, st.integers(0, 6), STEPS)
def test_no_window_admits_more_than_its_rate_and_the_burst(
    rates: tuple[Rate, ...], burst: int, steps: list[tuple[str, float, int]]
) -> None:
    windows, now = Windows(rates, burst), 1_000.0
    disk = stored(windows)
    admitted: list[tuple[float, float]] = []
    lent: list[tuple[float, float]] = []
    for what, seconds, cost in steps:
        now += seconds
        wanted = min(cost, windows.most)
        match what:
            case "admit":
                if windows.admit(wanted, now) == 0:
                    admitted.append((now, wanted))
                    disk = stored(windows)
            case "reserve":
                windows.reserve(wanted, now, seconds=0.25)
                disk = stored(windows)
            case "reserved":
                if windows.admit_reserved(wanted, now):  # not stored again: it is spent there
                    admitted.append((now, wanted))
            case "lend":
                lent.append((now + 0.25 * (cost / 5), windows.lend(wanted, now, seconds=0.25)))
                disk = stored(windows)
            case "restart":
                windows = Windows.restored(msgspec.msgpack.decode(disk, type=WindowsState), now)
            case "back":
                windows.wait(wanted, now - 5.0)  # a clock that runs backwards changes nothing
    uses = sorted([*admitted, *lent])
    for rate in rates:  # I46
        for at, _ in uses:
            spent = sum(cost for time, cost in uses if at - rate.per < time <= at)
            assert spent <= rate.amount + burst + 1e-6


@settings(max_examples=examples(150))
@given(RATES, st.integers(0, 6), st.floats(0.01, 1.0))
def test_a_steady_caller_gets_what_the_narrowest_rate_allows(
    rates: tuple[Rate, ...], burst: int, every: float
) -> None:
    windows, start = Windows(rates, burst), 50.0
    now, count = start, 0
    while now < start + 40.0:
        wait = windows.admit(1, now)
        count += wait == 0
        now += wait or every
    span = now - start
    allowed = min(rate.amount / rate.per for rate in rates)
    most = min((span // rate.per + 2) * rate.amount + burst for rate in rates)
    assert count <= most  # in the long run the burst is given once
    assert count >= 0.85 * min(allowed, 1 / every) * (span - max(rate.per for rate in rates)) - 1


@given(RATES, st.integers(0, 6), st.integers(1, 5))
def test_after_the_time_that_a_refusal_names_it_is_admitted(
    rates: tuple[Rate, ...], burst: int, cost: int
) -> None:
    windows, now = Windows(rates, burst), 10.0
    cost = int(min(cost, windows.most))
    while not (wait := windows.admit(cost, now)):
        now += 0.01
    before = stored(windows)
    assert windows.admit(cost, now) == wait
    assert stored(windows) == before  # refused: none is charged
    for _ in range(200):
        now += wait
        if not (wait := windows.admit(cost, now)):
            return
    raise AssertionError("it was never admitted")


def test_all_windows_admit_or_none_is_charged() -> None:
    windows = Windows((Rate(100, per=1), Rate(3, per=60)))
    assert [windows.admit(1, 5.0) for _ in range(3)] == [0, 0, 0]
    assert windows.admit(1, 5.0) > 50
    state = windows.state()
    assert [sum(cost for _, cost in one.slots) for one in state.windows] == [3, 3]


def test_of_an_unknown_limit_everything_counts_as_spent() -> None:
    windows = Windows.spent((Rate(5, per=10),), 2, now=100.0)
    assert windows.wait(1, 100.0) > 5
    assert windows.wait(1, 120.0) == 0


def test_a_change_of_rates_remembers_what_was_spent() -> None:
    windows = Windows((Rate(10, per=10),))
    for _ in range(8):
        assert windows.admit(1, 100.0) == 0
    windows.change((Rate(5, per=5),), 0)
    assert windows.admit(1, 101.0) > 0
    windows.change((Rate(20, per=10),), 0)
    assert [windows.admit(1, 101.0) for _ in range(10)] == [0] * 10


@pytest.mark.parametrize("cost", [0, -1, 11])
def test_a_cost_that_is_never_admitted_is_refused(cost: float) -> None:
    with pytest.raises(InvalidValue):
        Windows((Rate(10),)).admit(cost, 0.0)


@pytest.mark.parametrize("rates", [(), (Rate(0),), (Rate(1, per=0),), (Rate(1),) * 9])
def test_rates_are_checked(rates: tuple[Rate, ...]) -> None:
    with pytest.raises(InvalidValue):
        Windows(rates)


def test_keys_have_their_own_buckets_which_are_bounded_and_forgotten() -> None:
    buckets = Buckets((Rate(1, per=1),), keys_max=2)
    assert buckets.of("a", 10.0).admit(1, 10.0) == 0
    assert buckets.of("b", 10.0).admit(1, 10.0) == 0
    assert buckets.of("a", 10.1).admit(1, 10.1) > 0
    with pytest.raises(Overloaded):
        buckets.of("c", 10.2)
    assert buckets.of("c", 12.0).admit(1, 12.0) == 0
    assert buckets.forget_idle(14.0) == ["a", "c"]


@settings(max_examples=examples(200))
@given(
    RATES, st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 0.4), st.integers(1, 4)), max_size=80),
)  # fmt: skip
def test_hosts_that_borrow_keep_the_bound(
    rates: tuple[Rate, ...], burst: int, steps: list[tuple[int, float, int]]
) -> None:
    windows, now = Windows(rates, burst), 1_000.0
    hosts = [LentTokens() for _ in range(3)]
    uses: list[tuple[float, float]] = []
    for number, seconds, cost in steps:
        now += seconds
        host = hosts[number]
        if not host.take(cost, now):
            lent = windows.lend(host.wanted(cost), now, seconds=0.25)
            host.lent(lent, now + 0.25, now)
            if not host.take(cost, now):
                continue
        uses.append((now, cost))
    for rate in rates:  # I46
        for at, _ in uses:
            spent = sum(cost for time, cost in uses if at - rate.per < time <= at)
            assert spent <= rate.amount + burst + 1e-6


def test_what_was_lent_is_used_in_time_or_lost() -> None:
    tokens = LentTokens()
    assert not tokens.take(1, 0.0)
    tokens.lent(5, 0.25, 0.0)
    assert tokens.take(2, 0.2)
    assert tokens.wanted(1) == 5
    tokens.lent(2, 0.45, 0.2)
    assert tokens.take(4, 0.24)
    assert not tokens.take(1, 0.3)  # no later than the first loan
    tokens.lent(1, 0.55, 0.3)
    assert not tokens.take(2, 0.3)
