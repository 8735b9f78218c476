"""When recurring jobs run: on time, late, postponed, after an outage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import ASYNC_REQUEST, BULK_DELETE, DUPLICATE_DETECTION
from relevo.jobs.core.series import (
    MISSED_MAX,
    Due,
    Occurrence,
    Series,
    change_refusal,
    code_of,
    due,
    first,
    following,
    late_text,
    plan,
    realigned,
    restarted,
)

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def series(text: str, *, anchor: datetime = START, **told: Any) -> Series:
    return plan(text, anchor=anchor, **{"operation_type": ASYNC_REQUEST, **told})


def at(found: Occurrence | None) -> timedelta | None:
    """How long after the start an occurrence is."""
    return None if found is None else found.nominal - START


def told(found: Due) -> tuple[str, timedelta | None, timedelta | None]:
    return found.action, at(found.occurrence), at(found.next)


# Patterns and their codes (7.1)


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("FREQ=SECONDLY", ASYNC_REQUEST, codes.BAD_PATTERN),
        ("FREQ=DAILY;BYSETPOS=1", ASYNC_REQUEST, codes.BAD_PATTERN),
        ("FREQ=DAILY;COUNT=2;UNTIL=20301231", ASYNC_REQUEST, codes.BAD_PATTERN),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31", ASYNC_REQUEST, codes.BAD_PATTERN),
        ("FREQ=DAILY;UNTIL=20200101", ASYNC_REQUEST, codes.BAD_PATTERN),
        ("FREQ=DAILY;INTERVAL=0", ASYNC_REQUEST, codes.BAD_INTERVAL),
        ("FREQ=DAILY;INTERVAL=366", BULK_DELETE, codes.BAD_INTERVAL),
        ("FREQ=HOURLY;INTERVAL=48", BULK_DELETE, codes.TOO_FREQUENT),
        ("FREQ=MINUTELY", DUPLICATE_DETECTION, codes.TOO_FREQUENT),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_with_its_code(text: str, kind: int, code: int) -> None:
    with pytest.raises(InvalidRecurrence) as caught:
        series(text, operation_type=kind)
    assert code_of(caught.value) == code


@pytest.mark.parametrize("kind", [BULK_DELETE, DUPLICATE_DETECTION])
def test_bulk_jobs_recur_daily_or_less_often(kind: int) -> None:
    for text in ("FREQ=DAILY;", "FREQ=WEEKLY;BYDAY=MO", "FREQ=MONTHLY", "FREQ=YEARLY"):
        assert first(series(text, operation_type=kind)).nominal >= START


@pytest.mark.parametrize("name", ["Nowhere/Town", "../etc/passwd", "", "Europe", "\0"])
def test_a_zone_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="no time zone"):
        series("FREQ=DAILY", zone=name)


def test_only_the_pattern_of_a_recurring_job_can_be_changed() -> None:
    assert change_refusal(ASYNC_REQUEST, recurring=True) is None
    for kind, recurring, code in (
        (ASYNC_REQUEST, False, codes.NOT_RECURRING),
        (1, False, codes.CANNOT_RECUR),
        (1, True, codes.CANNOT_RECUR),
    ):
        found = change_refusal(kind, recurring=recurring)
        assert found is not None
        assert found.code == code


# The first instant, and the one after


def test_the_first_run_is_at_the_start_if_it_fits_and_else_at_the_first_instant_that_does() -> None:
    assert at(first(series("FREQ=DAILY"))) == timedelta(0)
    assert at(first(series("FREQ=DAILY;BYHOUR=9"))) == 23 * HOUR


def test_the_last_occurrence_has_no_follower() -> None:
    counted = series("FREQ=DAILY;COUNT=2")
    one = first(counted)
    two = following(counted, one, one.nominal)
    assert two == Occurrence(START + DAY, 2)
    assert following(counted, two, two.nominal) is None
    until = series("FREQ=DAILY;UNTIL=20260302T100000Z")
    last = following(until, first(until), START)
    assert at(last) == DAY
    assert last is not None
    assert following(until, last, last.nominal) is None


def test_count_counts_instants_that_were_missed_too() -> None:
    counted = series("FREQ=DAILY;COUNT=3")
    found = due(counted, first(counted), now=START + 1.5 * DAY)
    assert found.next == Occurrence(START + 2 * DAY, 3)
    assert due(counted, first(counted), now=START + 2.5 * DAY).next is None


def test_what_was_due_when_the_former_run_began_is_not_missed() -> None:
    claimed = START + 2.5 * DAY
    for missed, expected in (
        ("all", ("run", DAY, 2 * DAY)),
        ("coalesce", ("later", 3 * DAY, 4 * DAY)),
    ):
        one = series("FREQ=DAILY", missed=missed)
        row = Occurrence(START + DAY)
        assert told(due(one, row, now=claimed, caught_up=claimed)) == expected
    late = due(series("FREQ=DAILY"), row, now=START + 3.5 * DAY, caught_up=claimed)
    assert told(late) == ("run", 3 * DAY, 4 * DAY)
    counted = series("FREQ=DAILY;COUNT=3")
    assert due(counted, Occurrence(START + DAY, 2), now=claimed, caught_up=claimed).action == "end"


def test_postponing_moves_one_occurrence_only() -> None:
    until = START + 2.5 * DAY
    for missed, expected in (("all", 1), ("coalesce", 3), ("skip", 3)):
        one = series("FREQ=DAILY", missed=missed)
        assert at(following(one, first(one), until)) == expected * DAY
        found = due(one, first(one), now=until, postponed_until=until)
        assert told(found) == ("run", timedelta(0), expected * DAY)
        assert found.friendly is None


def test_a_run_that_was_brought_forward_does_not_happen_again_at_its_instant() -> None:
    # A18
    daily = series("FREQ=DAILY")
    early = Occurrence(START + DAY)
    assert at(following(daily, early, START + DAY - HOUR)) == 2 * DAY


def test_a_changed_pattern_waits_for_a_future_instant() -> None:
    now = START + 10.2 * DAY
    assert at(restarted(series("FREQ=DAILY;INTERVAL=3"), now)) == 12 * DAY
    assert restarted(series("FREQ=DAILY;COUNT=20"), now) == Occurrence(START + 11 * DAY, 12)
    assert at(restarted(series("FREQ=DAILY", anchor=START + 20 * DAY), now)) == 20 * DAY
    with pytest.raises(InvalidRecurrence, match="no instant after"):
        restarted(series("FREQ=DAILY;COUNT=5"), now)


# Late and missed


def test_on_time_nothing_is_remarkable() -> None:
    daily = series("FREQ=DAILY")
    found = due(daily, first(daily), now=START + timedelta(seconds=1))
    assert told(found) == ("run", timedelta(0), DAY)
    assert found.friendly is None


def test_a_row_that_is_not_due_yet_waits_on() -> None:
    daily = series("FREQ=DAILY")
    assert told(due(daily, first(daily), now=START - HOUR)) == ("later", timedelta(0), DAY)
    found = due(daily, first(daily), now=START + HOUR, postponed_until=START + 2 * HOUR)
    assert told(found) == ("later", timedelta(0), DAY)


def test_coalesce_runs_once_and_goes_on_in_the_future() -> None:
    daily = series("FREQ=DAILY")
    found = due(daily, first(daily), now=START + 3 * DAY + 2 * HOUR)
    assert told(found) == ("run", timedelta(0), 4 * DAY)
    assert found.friendly == "late by 3 d 2 h"


def test_skip_runs_none_that_is_later_than_the_grace() -> None:
    daily = series("FREQ=DAILY", missed="skip")
    assert told(due(daily, first(daily), now=START + 2 * HOUR)) == ("later", DAY, 2 * DAY)
    assert told(due(daily, first(daily), now=START + HOUR / 2)) == ("run", timedelta(0), DAY)
    within = due(daily, first(daily), now=START + 3 * DAY + HOUR / 2)
    assert told(within) == ("run", 3 * DAY, 4 * DAY)
    assert within.friendly is None
    strict = series("FREQ=DAILY", missed="skip", misfire_grace=timedelta(0))
    assert due(strict, first(strict), now=START + timedelta(seconds=1)).action == "run"
    over = series("FREQ=DAILY;COUNT=1", missed="skip")
    assert due(over, first(over), now=START + DAY).action == "end"


def test_all_runs_each_missed_instant_the_oldest_first() -> None:
    hourly = series("FREQ=HOURLY", missed="all")
    found = due(hourly, first(hourly), now=START + 5.5 * HOUR)
    assert told(found) == ("run", timedelta(0), HOUR)
    assert found.friendly == "late by 5 h 30 min"


@pytest.mark.parametrize("count", ["", ";COUNT=900000"])
def test_all_catches_up_with_a_hundred_at_most(count: str) -> None:
    minutely = series(f"FREQ=MINUTELY{count}", missed="all", misfire_grace=10 * DAY)
    now = START + timedelta(minutes=5_000, seconds=30)
    runs = []
    row: Occurrence | None = first(minutely)
    while row is not None and row.nominal <= now:
        found = due(minutely, row, now=now)
        runs.append(found.occurrence)
        row = found.next
    assert len(runs) == MISSED_MAX
    assert at(runs[0]) == timedelta(minutes=4_901)
    assert at(row) == timedelta(minutes=5_001)
    assert runs[-1].ordinal == (5_001 if count else 0)


def test_a_year_of_missed_minutes_is_not_walked_through() -> None:
    minutely = series("FREQ=MINUTELY", missed="all")
    found = due(minutely, first(minutely), now=START + 10_000 * DAY)
    assert at(found.occurrence) == 10_000 * DAY - timedelta(minutes=MISSED_MAX - 1)


@pytest.mark.parametrize(
    ("late", "text"),
    [
        (timedelta(seconds=0.5), "late by 0 s"),
        (timedelta(seconds=61), "late by 1 min 1 s"),
        (timedelta(hours=2, minutes=5, seconds=9), "late by 2 h 5 min"),
        (timedelta(days=1), "late by 1 d"),
        (timedelta(days=400, seconds=5), "late by 400 d 5 s"),
    ],
)
def test_lateness_is_told_by_its_two_largest_units(late: timedelta, text: str) -> None:
    assert late_text(late) == text


# Overlap


def test_a_run_that_is_due_while_the_former_runs() -> None:
    now = START + 2.5 * HOUR
    for overlap, expected in (
        ("queue", ("wait", timedelta(0), None)),
        ("skip", ("later", 3 * HOUR, 4 * HOUR)),
        ("parallel", ("run", timedelta(0), 3 * HOUR)),
    ):
        one = series("FREQ=HOURLY", overlap=overlap)
        assert told(due(one, first(one), now=now, unfinished=True)) == expected
        assert due(one, first(one), now=now).action == "run"


def test_a_series_whose_last_run_is_skipped_ends() -> None:
    one = series("FREQ=HOURLY;COUNT=1", overlap="skip")
    assert due(one, first(one), now=START, unfinished=True).action == "end"


# Clocks that change


def test_a_row_computed_by_former_rules_of_its_zone_is_moved() -> None:
    # A18: otherwise the day would have two runs, one by each rule.
    madrid = series("FREQ=DAILY", zone="Europe/Madrid")
    one_hour_early = Occurrence(START + DAY - HOUR)
    assert at(realigned(madrid, one_hour_early)) == DAY
    assert told(due(madrid, one_hour_early, now=START + DAY - HOUR)) == ("later", DAY, 2 * DAY)
    counted = series("FREQ=HOURLY;COUNT=5", zone="Europe/Madrid")
    third = Occurrence(START + 2 * HOUR, 3)
    assert realigned(counted, third) == third
