"""A breaker opens after failures, and lets a trial decide whether it closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.governance.core.breaking import BreakerRules, BreakerState

RULES = BreakerRules(failures=3, within=10.0, reset_after=30.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from(["ok", "bad", "none"])), max_size=60))
def test_it_is_open_for_its_rest_and_lets_one_trial_pass(steps: list[tuple[float, str]]) -> None:
    breaker, now, opened = BreakerState(RULES), 0.0, -100.0
    for seconds, end in steps:
        now += seconds
        state = breaker.state
        wait = breaker.ask(now)
        if wait:
            assert breaker.state == "open"
            assert now + wait == pytest.approx(opened + 30.0)
            continue
        assert state == "closed" or now >= opened + 30.0
        if breaker.state == "half_open":
            assert breaker.ask(now) > 0  # one trial at a time
        if end == "ok":
            breaker.succeeded(now)
        elif end == "bad":
            breaker.failed(now)
        else:
            breaker.withdrawn()
        if breaker.state == "open":
            opened = now


def test_only_failures_close_together_open_it() -> None:
    breaker = BreakerState(RULES)
    for now in (0.0, 6.0, 12.0, 18.0):
        breaker.failed(now)
    assert breaker.state == "closed"
    breaker.failed(19.0)
    assert breaker.state == "open"


def test_a_trial_whose_end_is_never_told_keeps_no_place() -> None:
    breaker = BreakerState(BreakerRules(failures=1, reset_after=5.0))
    breaker.failed(0.0)
    assert breaker.ask(5.0) == 0
    assert breaker.ask(6.0) > 0
    assert breaker.ask(10.5) == 0
    breaker.succeeded(11.0)
    assert breaker.state == "closed"


def test_rules_are_checked() -> None:
    with pytest.raises(InvalidValue):
        BreakerRules(failures=0)
