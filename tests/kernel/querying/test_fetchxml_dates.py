"""What relative dates mean, around a Wednesday afternoon and around changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relevo.kernel.querying.fetchxml.dates import (
    CALENDAR,
    COUNTED,
    DAYS,
    SEVEN_DAYS,
    TICK,
    DateInterval,
    interval,
    of_day,
    shift,
)
from tests.kernel.querying.fetch_tables import NOW


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("yesterday", "2026-03-10", "2026-03-11"),
        ("today", "2026-03-11", "2026-03-12"),
        ("tomorrow", "2026-03-12", "2026-03-13"),
        ("last-week", "2026-03-01", "2026-03-08"),
        ("this-week", "2026-03-08", "2026-03-15"),
        ("next-week", "2026-03-15", "2026-03-22"),
        ("last-month", "2026-02-01", "2026-03-01"),
        ("this-month", "2026-03-01", "2026-04-01"),
        ("next-month", "2026-04-01", "2026-05-01"),
        ("last-year", "2025-01-01", "2026-01-01"),
        ("this-year", "2026-01-01", "2027-01-01"),
        ("next-year", "2027-01-01", "2028-01-01"),
    ],
)
def test_units_of_the_calendar_are_whole_and_half_open(name: str, since: str, until: str) -> None:
    assert interval(name, NOW) == DateInterval(at(since), at(until))


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("last-x-hours", "2026-03-11T12:00"),
        ("last-x-days", "2026-03-09"),
        ("last-x-weeks", "2026-02-25"),
        ("last-x-months", "2026-01-11"),
        ("last-x-years", "2024-03-11"),
    ],
)
def test_the_last_two_reach_from_a_full_hour_or_day_to_now(name: str, since: str) -> None:
    assert interval(name, NOW, 2) == DateInterval(at(since), NOW + TICK)


@pytest.mark.parametrize(
    ("name", "until"),
    [
        ("next-x-hours", "2026-03-11T17:00"),
        ("next-x-days", "2026-03-14"),
        ("next-x-weeks", "2026-03-26"),
        ("next-x-months", "2026-05-12"),
        ("next-x-years", "2028-03-12"),
    ],
)
def test_the_next_two_reach_from_now_to_a_full_hour_or_day(name: str, until: str) -> None:
    assert interval(name, NOW, 2) == DateInterval(NOW, at(until))


@pytest.mark.parametrize(
    ("name", "until"),
    [
        ("olderthan-x-minutes", NOW - timedelta(minutes=2)),
        ("olderthan-x-hours", NOW - timedelta(hours=2)),
        ("olderthan-x-days", NOW - timedelta(days=2)),
        ("olderthan-x-weeks", NOW - timedelta(weeks=2)),
        ("olderthan-x-months", NOW.replace(month=1)),
        ("olderthan-x-years", NOW.replace(year=2024)),
    ],
)
def test_what_is_older_is_so_to_the_tick(name: str, until: datetime) -> None:
    assert interval(name, NOW, 2) == DateInterval(None, until)


def test_seven_days_are_what_they_say() -> None:
    assert interval("last-seven-days", NOW) == interval("last-x-days", NOW, 7)
    assert interval("next-seven-days", NOW) == interval("next-x-days", NOW, 7)


def test_the_day_of_a_date() -> None:
    day, after = at("2026-03-11"), at("2026-03-12")
    assert of_day("on", NOW) == DateInterval(day, after)
    assert of_day("on-or-after", NOW) == DateInterval(day, None)
    assert of_day("on-or-before", NOW) == DateInterval(None, after)


def test_the_last_day_there_is_has_no_end() -> None:
    last = datetime(9999, 12, 31, 12, tzinfo=UTC)
    assert of_day("on", last) == DateInterval(last.replace(hour=0), None)
    assert of_day("on-or-before", last) == DateInterval(None, None)


def test_the_last_day_of_a_month_stays_the_last() -> None:
    assert shift(at("2026-03-31"), "month", -1) == at("2026-02-28")
    assert shift(at("2024-02-29"), "year", 1) == at("2025-02-28")


def test_a_day_is_that_of_the_time_zone_and_may_be_short() -> None:
    noon = datetime(2026, 3, 29, 12, tzinfo=ZoneInfo("Europe/Madrid"))
    assert interval("today", noon) == DateInterval(at("2026-03-28T23:00"), at("2026-03-29T22:00"))
    assert interval("last-x-hours", noon, 12).since == at("2026-03-28T22:00")


@pytest.mark.parametrize("count", [10**9, 12 * 9999, 3000])
def test_what_lies_outside_the_calendar_overflows(count: int) -> None:
    with pytest.raises(OverflowError):
        interval("last-x-years", NOW, count)


def test_every_date_operator_of_the_specification_is_known() -> None:
    units = ["hours", "days", "weeks", "months", "years"]
    assert set(COUNTED) == {
        *(f"{side}-x-{unit}" for side in ("last", "next") for unit in units),
        *(f"olderthan-x-{unit}" for unit in ["minutes", *units]),
    }
    assert len(CALENDAR) == 12
    assert set(SEVEN_DAYS) == {"last-seven-days", "next-seven-days"}
    assert set(DAYS) == {"on", "on-or-before", "on-or-after"}


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()),
    st.sampled_from(sorted([*CALENDAR, *SEVEN_DAYS, *COUNTED])),
    st.integers(1, 500),
)
def test_intervals_are_in_utc_and_run_forward(now: datetime, name: str, count: int) -> None:
    found = interval(name, now, count)
    ends = [end for end in (found.since, found.until) if end is not None]
    assert ends
    assert all(end.tzinfo is UTC for end in ends)
    assert ends == sorted(ends)
    if name.startswith(("last-x", "next-x", "this", "today")):
        assert found.since is not None
        assert found.until is not None
        assert found.since <= now < found.until
