"""The kinds of job and their lanes."""

from __future__ import annotations

import pytest

from relevo.errors import InvalidValue
from relevo.jobs.core.operation_types import (
    DAILY_AT_MOST,
    OPERATION_TYPES,
    OWN_PLATFORM,
    RECURRING,
    is_platform,
    label_of,
    lane_of,
    operation_type,
)


def test_types_of_each_lane() -> None:
    bulk = {*range(2, 9), 11, 13, 17, 23, 59, 94, *range(202, 212), 300}
    assert {one for one in range(1, 401) if lane_of(one) == "bulk"} == bulk
    assert {one for one in range(1, 401) if lane_of(one) == "workflow"} == {10}
    assert (lane_of(1), lane_of(54), lane_of(14)) == ("default", "default", "maintenance")


def test_what_relevo_runs_and_what_belongs_to_the_platform() -> None:
    handled = {one.number for one in OPERATION_TYPES.values() if one.handled}
    assert handled == {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 17, 23, 54}
    platform = {one.number for one in OPERATION_TYPES.values() if one.platform}
    assert platform == (
        {9, 12, 14, 15, 16, *range(18, 23), *range(24, 33), 41, 46, 47, 53, 56, 65, 71, 73, 103}
        | {239, 333, 334, 339, 12801}
    )
    assert set(OWN_PLATFORM) == {14, 15, 19, 20, 31} <= platform
    assert not handled & platform


def test_labels_of_types_that_are_only_labeled() -> None:
    assert label_of(79) == "CallbackRegistration Expander Operation"
    assert label_of(190690092) == "AI Builder Prediction Events"
    assert all(one.label for one in OPERATION_TYPES.values())


def test_a_number_that_nobody_knows_is_its_own_label() -> None:
    found = operation_type(777_000)
    assert (found.label, found.lane, found.handled, found.platform) == (
        "777000",
        "default",
        False,
        False,
    )
    assert not is_platform(777_000)


@pytest.mark.parametrize("number", [0, -1])
def test_types_are_positive(number: int) -> None:
    with pytest.raises(InvalidValue, match="positive"):
        operation_type(number)


def test_what_may_recur() -> None:
    assert sorted(DAILY_AT_MOST) == [8, 13]
    assert {8, 13, 14, 54} <= RECURRING
    assert 1 not in RECURRING
