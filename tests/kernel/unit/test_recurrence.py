"""When a series runs: against an oracle in UTC, and by the rules for clocks that change."""

from __future__ import annotations

import importlib
import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given
from hypothesis import strategies as st

from relevo.errors import InvalidRecurrence
from relevo.kernel.recurrence import Pattern, after, instants, parse
from tests.support.watchdog import HELD_SECONDS_MAX, seconds_of

ZONES = (
    "Europe/Madrid",
    "Europe/London",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Asia/Tehran",
    "Africa/Casablanca",
    "Pacific/Chatham",
)
recurring = importlib.import_module("relevo.kernel.recurrence.instants")
DAY = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def first(text: str, anchor: datetime, count: int, zone: str | None = None) -> list[datetime]:
    found = instants(parse(text), anchor, zone=ZoneInfo(zone) if zone else None)
    return list(itertools.islice(found, count))


@st.composite
def patterns(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}"]
    if draw(st.booleans()):
        parts.append(f"INTERVAL={draw(st.integers(1, 20))}")
    if draw(st.booleans()):
        parts.append(f"WKST={draw(st.sampled_from(DAY))}")
    numbers = {
        "BYMONTH": st.integers(1, 12),
        "BYHOUR": st.integers(0, 23),
        "BYMINUTE": st.integers(0, 59),
        "BYMONTHDAY": st.integers(1, 31) | st.integers(-31, -1),
    }
    for name, values in numbers.items():
        if draw(st.integers(0, 3)) == 0:
            chosen = draw(st.lists(values, min_size=1, max_size=3))
            parts.append(f"{name}={','.join(map(str, chosen))}")
    if draw(st.integers(0, 2)) == 0:
        counted = frequency in ("MONTHLY", "YEARLY") and draw(st.booleans())
        nth = st.sampled_from(["1", "+2", "-1", "5", "-3"]) if counted else st.just("")
        chosen_days = draw(
            st.lists(st.tuples(nth, st.sampled_from(DAY)), min_size=1, max_size=3, unique=True)
        )
        parts.append("BYDAY=" + ",".join(n + day for n, day in chosen_days))
    return ";".join(parts) + draw(st.sampled_from(["", ";"]))


anchors = st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)).map(
    lambda one: one.replace(microsecond=0)
)


@given(patterns(), anchors)
def test_days_are_those_of_the_oracle_in_utc(text: str, anchor: datetime) -> None:  # A18
    until = anchor + timedelta(days=4_000)
    oracle = rrulestr(text.removesuffix(";"), dtstart=anchor)
    expected = list(itertools.islice(itertools.takewhile(lambda x: x <= until, oracle), 25))
    found = list(
        itertools.islice(
            itertools.takewhile(lambda x: x <= until, instants(parse(text), anchor)), 25
        )
    )
    assert found == expected


@given(patterns(), anchors, st.integers(0, 20))
def test_a_series_can_be_entered_anywhere(text: str, anchor: datetime, behind: int) -> None:
    pattern = parse(text)
    found = list(itertools.islice(instants(pattern, anchor), behind + 2))
    for earlier, later in itertools.pairwise(found):
        assert after(pattern, anchor, earlier) == later
        assert after(pattern, anchor, later - timedelta(microseconds=1)) == later


def changes(where: ZoneInfo) -> list[date]:
    """The days from 2020 to 2037 on which a zone's clocks are changed."""
    days = [date(2020, 1, 1) + timedelta(days=n) for n in range(18 * 366)]
    noons = [datetime(one.year, one.month, one.day, 12, tzinfo=where).utcoffset() for one in days]
    return [one for one, a, b in zip(days[1:], noons, noons[1:], strict=False) if a != b]


@pytest.mark.parametrize("zone", ZONES)
def test_days_keep_their_local_time_except_in_gaps(zone: str) -> None:  # A18
    """Around every change, at each quarter of an hour: once, at that time or behind the gap."""
    where = ZoneInfo(zone)
    pattern = parse("FREQ=DAILY")
    for changed in changes(where):
        for minutes in range(0, 24 * 60, 15):
            local = datetime(2019, 1, 1, minutes // 60, minutes % 60, tzinfo=where)
            day = changed - timedelta(days=1)
            middle = datetime(day.year, day.month, day.day, tzinfo=where)
            found = instants(pattern, local, zone=where, after=middle - timedelta(microseconds=1))
            for one in itertools.islice(found, 3):
                wanted = datetime(day.year, day.month, day.day, local.hour, local.minute)
                shown = one.astimezone(where).replace(tzinfo=None, fold=0)
                before = wanted.replace(tzinfo=where).utcoffset()
                assert before is not None
                assert one == (wanted - before).replace(tzinfo=UTC)
                assert wanted <= shown <= wanted + timedelta(hours=2)
                assert one.astimezone(where).fold == 0
                day += timedelta(days=1)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("hours", [1, 5, 24])
def test_hours_are_elapsed_time(zone: str, hours: int) -> None:  # A19
    anchor = datetime(2024, 1, 1, 0, 30, tzinfo=UTC)
    found = first(f"FREQ=HOURLY;INTERVAL={hours}", anchor, 10_000 // hours, zone)
    assert all(b - a == timedelta(hours=hours) for a, b in itertools.pairwise(found))


def test_a_day_of_a_change_has_23_or_25_hours() -> None:
    madrid = ZoneInfo("Europe/Madrid")
    for month, day, count in ((3, 31, 23), (10, 27, 25), (7, 1, 24)):
        start = datetime(2024, month, day, tzinfo=madrid)
        end = datetime(2024, month, day, 23, 59, tzinfo=madrid)
        found = itertools.islice(instants(parse("FREQ=HOURLY"), start, zone=madrid), 30)
        assert sum(one <= end for one in found) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=MONTHLY;BYMONTHDAY=31", ["2026-01-31", "2026-03-31", "2026-05-31"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("freq=daily;interval=3;", ["2026-01-15", "2026-01-18", "2026-01-21"]),
        ("FREQ=WEEKLY;BYMONTHDAY=13", ["2026-02-13", "2026-03-13", "2026-04-13"]),
        ("FREQ=WEEKLY;BYMONTHDAY=13;BYDAY=FR", ["2026-02-13", "2026-03-13", "2026-11-13"]),
        ("FREQ=DAILY;COUNT=2", ["2026-01-15", "2026-01-16"]),
        ("FREQ=DAILY;UNTIL=20260116", ["2026-01-15", "2026-01-16"]),
        ("FREQ=DAILY;UNTIL=20260116T095959Z", ["2026-01-15"]),
    ],
)
def test_dates_that_do_not_exist_are_skipped(text: str, expected: list[str]) -> None:
    anchor = datetime(2026, 1, 15, 10, tzinfo=UTC)
    assert [str(one.date()) for one in first(text, anchor, 3)] == expected


def test_hours_and_minutes_take_what_fits_the_clock() -> None:
    anchor = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    found = first("FREQ=HOURLY;BYHOUR=9,17;BYDAY=MO", anchor, 3)
    assert [f"{one:%a %H:%M}" for one in found] == ["Mon 09:10", "Mon 17:10", "Mon 09:10"]
    found = first("FREQ=MINUTELY;INTERVAL=15;BYHOUR=9", anchor, 5)
    assert [f"{one:%H:%M}" for one in found] == ["09:10", "09:25", "09:40", "09:55", "09:10"]
    found = first("FREQ=HOURLY;BYMINUTE=0,30", anchor, 3)
    assert [f"{one:%H:%M}" for one in found] == ["00:30", "01:00", "01:30"]


def minutes_shown(text: str, anchor: datetime, where: ZoneInfo, days: int) -> list[datetime]:
    """The same by looking at every minute: elapsed hours, of which the clock takes minutes."""
    pattern = parse(text)
    base = anchor - timedelta(minutes=anchor.astimezone(where).minute)
    found = []
    for n in range(days * 24 * 60):
        one = base + timedelta(minutes=n)
        shown = one.astimezone(where)
        if (
            n // 60 % pattern.interval == 0
            and one >= anchor
            and shown.minute in pattern.minutes
            and shown.hour in (pattern.hours or range(24))
        ):
            found.append(one)
    return found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("parts", ["", ";INTERVAL=2", ";INTERVAL=5;BYHOUR=0,1,2,3,13"])
def test_minutes_of_hours_are_those_of_the_local_clock(zone: str, parts: str) -> None:  # 7.2
    where = ZoneInfo(zone)
    text = f"FREQ=HOURLY;BYMINUTE=15,45{parts}"
    for anchor in (
        datetime(2026, 2, 1, 0, 20, tzinfo=UTC),
        datetime(2026, 8, 1, 0, 50, tzinfo=UTC),
    ):
        expected = minutes_shown(text, anchor, where, 100)
        assert first(text, anchor, len(expected), zone) == expected


def test_every_hour_has_its_minute_where_clocks_change_by_half_an_hour() -> None:  # 7.2
    anchor = datetime(2026, 1, 1, tzinfo=UTC)
    found = first("FREQ=HOURLY;BYMINUTE=15", anchor, 24 * 360, "Australia/Lord_Howe")
    assert {one.astimezone(ZoneInfo("Australia/Lord_Howe")).minute for one in found} == {15}
    assert max(b - a for a, b in itertools.pairwise(found)) == timedelta(minutes=90)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("FREQ=DAILY", "2026-10-26T01:30"),
        ("FREQ=WEEKLY", "2026-11-01T01:30"),
        ("FREQ=DAILY;BYHOUR=2,3", "2026-10-25T02:30"),
        ("FREQ=HOURLY", "2026-10-25T02:30"),
    ],
)
def test_a_start_in_the_hour_that_comes_again_is_the_first_instant(
    text: str, then: str
) -> None:  # 7.2
    anchor = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)  # 02:30 in Madrid, for the second time
    found = first(text, anchor, 2, "Europe/Madrid")
    assert found == [anchor, datetime.fromisoformat(then).replace(tzinfo=UTC)]
    madrid = ZoneInfo("Europe/Madrid")
    assert after(parse(text), anchor, anchor, zone=madrid) == found[1]
    earlier = anchor - timedelta(days=1)
    if text == "FREQ=DAILY":  # one that comes by there runs the first time
        assert first(text, earlier - timedelta(hours=1), 2, "Europe/Madrid")[
            1
        ] == anchor - timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not understood"),
        ("DAILY", "not understood"),
        ("INTERVAL=2", "needs FREQ"),
        ("FREQ=SECONDLY", "FREQ is one of"),
        ("FREQ=DAILY;BYSETPOS=1", "not understood"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=DAILY;INTERVAL=0", "1 to 365"),
        ("FREQ=DAILY;INTERVAL=366", "1 to 365"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20300101", "exclude"),
        ("FREQ=DAILY;BYDAY=2MO", "MONTHLY or YEARLY"),
        ("FREQ=DAILY;UNTIL=20301301", "UNTIL"),
        ("FREQ=DAILY;BYHOUR=-1", "BYHOUR"),
        ("FREQ=DAILY;;", "not understood"),
        ("FREQ=DAILY;" + "X" * 300, "256"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(InvalidRecurrence, match=says):
        parse(text)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except InvalidRecurrence:
        return


def fits(text: str, anchor: datetime, zone: str | None) -> bool:
    """Whether a pattern has an instant; the search for it may be given up."""
    try:
        return bool(first(text, anchor, 1, zone))
    except InvalidRecurrence:
        return False


@pytest.mark.parametrize("zone", [None, "Europe/Madrid", "America/Havana"])
@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
        "FREQ=DAILY;INTERVAL=364;BYDAY=MO",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=WEEKLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=3",
        "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1",
        "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1;BYMONTH=12;BYMONTHDAY=31;BYDAY=FR",
        "FREQ=MINUTELY;INTERVAL=360;BYHOUR=3;BYMINUTE=7",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=3;BYMINUTE=1,2",
    ],
)
def test_a_pattern_without_an_instant_is_found_out(text: str, zone: str | None) -> None:  # 7.1
    anchor = datetime(2026, 3, 31, 10, tzinfo=UTC)
    assert not fits(text, anchor, zone)


@pytest.mark.parametrize("interval", [1, 7, 343, 361, 364])
@pytest.mark.parametrize("frequency", ["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY"])
def test_no_search_for_an_instant_takes_long(frequency: str, interval: int) -> None:
    anchor = datetime(2026, 3, 31, 10, 7, tzinfo=UTC)
    for days in (";BYDAY=MO", ";BYMONTHDAY=31;BYDAY=MO", ";BYMONTH=4;BYMONTHDAY=-31,29"):
        text = f"FREQ={frequency};INTERVAL={interval}{days};BYHOUR=2;BYMINUTE=1"
        seconds = seconds_of(first, text, anchor, 1, "Australia/Lord_Howe")
        assert seconds < 5 * HELD_SECONDS_MAX, text  # it is done in a thread


def test_what_is_counted_from_far_back_is_refused() -> None:
    text = "FREQ=MINUTELY;BYHOUR=1,2,3;COUNT=1000000"
    past, now = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidRecurrence, match="too many instants to be counted"):
        for one in instants(parse(text), past):
            assert one < now


def test_that_there_is_no_instant_is_found_out_in_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # 7.1
    looks = 0
    fits = recurring._time_fits

    def counted(pattern: Pattern, local: datetime) -> bool:
        nonlocal looks
        looks += 1
        return bool(fits(pattern, local))

    monkeypatch.setattr(recurring, "_time_fits", counted)
    for interval, minute in ((2, "1"), (6, "1,3,5"), (360, "7")):
        looks = 0
        text = f"FREQ=MINUTELY;INTERVAL={interval};BYMINUTE={minute}"
        assert first(text, datetime(2026, 3, 30, tzinfo=UTC), 1, "Europe/Madrid") == []
        assert looks < 20 * 1_440  # a day of each kind, and those on which clocks change


@given(
    st.sampled_from(["HOURLY", "MINUTELY"]), st.integers(1, 200), st.sampled_from(ZONES), anchors,
    st.sets(st.integers(0, 23), max_size=2), st.sets(st.integers(0, 59), min_size=1, max_size=2),
)  # fmt: skip
def test_elapsed_patterns_are_what_every_step_shows(
    frequency: str, interval: int, zone: str, anchor: datetime, hours: set[int], minutes: set[int]
) -> None:  # 7.2, A19
    where = ZoneInfo(zone)
    text = f"FREQ={frequency};INTERVAL={interval};BYMINUTE={','.join(map(str, minutes))}"
    if hours:
        text += f";BYHOUR={','.join(map(str, hours))}"
    end = anchor + timedelta(days=20)
    found = itertools.takewhile(lambda one: one < end, instants(parse(text), anchor, zone=where))
    if frequency == "HOURLY":
        expected = [one for one in minutes_shown(text, anchor, where, 21) if one < end]
    else:
        every = itertools.takewhile(
            lambda one: one < end,
            (anchor + timedelta(minutes=n * interval) for n in itertools.count()),
        )
        shown = [(one, one.astimezone(where)) for one in every]
        expected = [
            one for one, at in shown if at.minute in minutes and (not hours or at.hour in hours)
        ]
    assert list(found) == expected
