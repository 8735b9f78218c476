"""Daily windows in which consumers claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidValue
from relevo.messaging.core.hours import Hours

NIGHT = Hours.of("22:00-06:00 Europe/Madrid")
TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))


def at(day: str) -> datetime:
    return datetime.fromisoformat(day)


@pytest.mark.parametrize(
    ("now", "are_open"),
    [
        ("2026-07-01T19:59:59Z", False),
        ("2026-07-01T20:00:00Z", True),
        ("2026-07-02T03:59:59Z", True),
        ("2026-07-02T04:00:00Z", False),
        ("2026-01-01T20:00:00Z", False),
        ("2026-01-01T21:00:00Z", True),
    ],
)
def test_windows_follow_the_clocks_of_their_zone(now: str, are_open: bool) -> None:
    assert NIGHT.are_open(at(now)) is are_open


def test_several_windows_and_midnight_as_an_end() -> None:
    hours = Hours.of("12:00-14:00, 22:00-24:00 UTC")
    found = [hour for hour in range(24) if hours.are_open(datetime(2026, 1, 1, hour, tzinfo=UTC))]
    assert found == [12, 13, 22, 23]


def test_a_window_that_begins_in_a_skipped_hour_opens_when_the_clock_has_jumped() -> None:
    hours = Hours.of("02:30-04:00 Europe/Madrid")
    assert hours.next_change(at("2026-03-29T00:00:00Z")) == at("2026-03-29T01:00:00Z")
    inside = Hours.of("02:10-02:50 Europe/Madrid")
    assert inside.next_change(at("2026-03-29T00:00:00Z")) == at("2026-03-30T00:10:00Z")


@given(TIMES, st.sampled_from([NIGHT, Hours.of("08:15-12:30, 14:00-18:00 Asia/Kolkata")]))
def test_nothing_changes_before_the_next_change(now: datetime, hours: Hours) -> None:
    change = hours.next_change(now)
    assert change is not None
    assert hours.are_open(change) is not hours.are_open(now)
    assert hours.are_open(change - timedelta(seconds=1)) is hours.are_open(now)


def test_a_whole_day_never_changes() -> None:
    assert Hours.of("00:00-24:00 UTC").next_change(at("2026-01-01T00:00:00Z")) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "always", "22:00-06:00", "22:00 Europe/Madrid", "25:00-06:00 UTC", "22:60-23:00 UTC",
        "22:00-22:00 UTC", "22:00-24:30 UTC", "22:00-06:00 Europe/Vigo", "2:00-06:00 UTC",
        "22:00-06:00; 08:00-09:00 UTC", ", ".join(["01:00-02:00"] * 25) + " UTC", None, 7,
    ],
)  # fmt: skip
def test_what_is_no_window_is_refused(text: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        Hours.of(text)
    assert refused.value.pointer == "hours"
