"""Labels, selectors and the truth table of job-router 9."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.labels import OPERATORS, Operator, holds, identity, same
from relevo.router.core.selectors import (
    QueueSelector,
    WorkerSelector,
    active,
    all_hold,
    expired,
    first_failing,
    is_expedited,
    is_over,
    started,
)
from tests.router.unit.router_worlds import compares

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EQUAL, DIFFERENT, LESS, LESS_EQUAL, MORE, MORE_EQUAL = OPERATORS


@pytest.mark.parametrize(
    ("label", "value", "true_for"),
    [
        (7, 7.0, {EQUAL, LESS_EQUAL, MORE_EQUAL}),
        (7, 8, {DIFFERENT, LESS, LESS_EQUAL}),
        (8.5, 8, {DIFFERENT, MORE, MORE_EQUAL}),
        ("a", "a", {EQUAL, LESS_EQUAL, MORE_EQUAL}),
        ("a", "A", {DIFFERENT, MORE, MORE_EQUAL}),
        ("10", "9", {DIFFERENT, LESS, LESS_EQUAL}),
        (True, True, {EQUAL}),
        (True, False, {DIFFERENT}),
        ("7", 7, {DIFFERENT}),
        (True, 1, {DIFFERENT}),
        (0, False, {DIFFERENT}),
        ("true", True, {DIFFERENT}),
        (None, 7, {DIFFERENT}),
        (None, False, {DIFFERENT}),
        (None, None, {EQUAL}),
        (7, None, {DIFFERENT}),
        (False, None, {DIFFERENT}),
    ],
)
def test_the_truth_table(label: Any, value: Any, true_for: set[Operator]) -> None:
    assert {one for one in OPERATORS if holds(one, label, value)} == true_for


@given(
    st.sampled_from(OPERATORS),
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=1),
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=1),
)
def test_every_pair_compares_as_the_spec_says(operator: Operator, label: Any, value: Any) -> None:
    assert holds(operator, label, value) == compares(operator, label, value)
    assert same(label, value) == (identity(label) == identity(value))


def test_two_selectors_on_one_key_are_a_range() -> None:
    between = [QueueSelector("size", MORE, 3), QueueSelector("size", LESS, 6)]
    assert [size for size in range(9) if all_hold(between, {"size": size})] == [4, 5]
    assert first_failing(between, {"size": 6}) == between[1]


def test_the_seeds_sample_job_suits_the_pizza_cook_only_by_its_language() -> None:
    cook: dict[str, Any] = {
        "Location": "New Jersey",
        "Language": "English",
        "PizzaMaker": 7,
        "DonairMaker": 10,
    }
    donairs = WorkerSelector("DonairMaker", MORE_EQUAL, 8)
    assert not all_hold([donairs, WorkerSelector("English", MORE, 5)], cook)
    assert all_hold([donairs, WorkerSelector("Language", EQUAL, "English")], cook)


def test_a_selectors_clock_starts_once_and_ends_what_it_asks_for() -> None:
    preferred = WorkerSelector("Id", EQUAL, "ana", expires_after_seconds=1.5, expedite=True)
    running = started(preferred, NOW)
    assert running.expires_at == NOW + timedelta(seconds=1.5)
    assert started(running, NOW + timedelta(seconds=1)) == running
    assert started(WorkerSelector("x", EQUAL, 1), NOW).expires_at is None
    assert not is_over(running, NOW + timedelta(seconds=1.4))
    assert is_over(running, NOW + timedelta(seconds=1.5))
    over = expired(running)
    assert not is_over(over, NOW + timedelta(days=1))
    assert is_expedited([running])
    assert not is_expedited([over])
    assert active([running, over]) == (running,)
    assert all_hold([over], {"Id": "bob"})


def test_selectors_are_their_wire_form() -> None:
    wire = {"key": "a", "labelOperator": "lessThan", "value": 2, "expiresAfterSeconds": 3}
    assert msgspec.convert(wire, WorkerSelector) == WorkerSelector(
        "a", "lessThan", 2, expires_after_seconds=3
    )
    assert msgspec.to_builtins(QueueSelector("a", EQUAL, True)) == {
        "key": "a",
        "labelOperator": "equal",
        "value": True,
    }
