"""Cron lines: against an oracle in UTC and where clocks change, and in plain words."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule
from hypothesis import given, settings
from hypothesis import strategies as st

from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.kernel.recurrence import after, describe, instants, next_runs, parse
from tests.conftest import examples

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("Europe/Madrid", "America/New_York", "Australia/Lord_Howe", "America/Havana")


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, set[int]]]:
    """The text of a field, and the numbers that it means."""
    number = st.integers(low, high)
    lists = st.lists(number, min_size=1, max_size=4).map(
        lambda found: (",".join(map(str, found)), set(found))
    )
    ranges = st.tuples(number, number, st.integers(1, 5)).map(
        lambda found: (
            f"{min(found[:2])}-{max(found[:2])}/{found[2]}",
            set(range(min(found[:2]), max(found[:2]) + 1, found[2])),
        )
    )
    steps = st.integers(1, high).map(lambda n: (f"*/{n}", set(range(low, high + 1, n))))
    return st.just(("*", set(range(low, high + 1)))) | lists | ranges | steps


FIELDS = st.tuples(
    field(0, 59) | st.just(("0", {0})), field(0, 59), field(0, 23), field(1, 31), field(1, 12),
    field(0, 6),
)  # fmt: skip
Fields = tuple[tuple[str, set[int]], ...]


def oracle(fields: Fields, start: datetime, end: datetime) -> list[datetime]:
    """The times of a line between two times of one clock, as dateutil has them."""
    (_, seconds), (_, minutes), (_, hours), (day_text, days), (_, months), (week, week_days) = (
        fields
    )
    common: dict[str, Any] = {
        "dtstart": start, "until": end, "bysecond": sorted(seconds), "byminute": sorted(minutes),
        "byhour": sorted(hours), "bymonth": sorted(months),
    }  # fmt: skip
    by_day = {"bymonthday": sorted(days)}
    by_week_day = {"byweekday": sorted((one + 6) % 7 for one in week_days)}
    rules = (
        [{**by_day, **by_week_day}]
        if day_text.startswith("*") or week.startswith("*")
        else [by_day, by_week_day]
    )
    found = rrule.rruleset()
    for rule in rules:
        found.rrule(rrule.rrule(rrule.DAILY, **common, **rule))
    return list(itertools.islice(found, 60))


@given(FIELDS, st.integers(0, 2_000), st.integers(0, 86_399))
@settings(max_examples=examples(300))
def test_lines_are_those_of_the_oracle_in_utc(fields: Fields, days: int, second: int) -> None:
    start = START + timedelta(days=days, seconds=second)
    end = start + timedelta(days=300)
    pattern = parse(" ".join(text for text, _ in fields))
    expected = oracle(fields, start, end)
    found = itertools.takewhile(lambda one: one <= end, instants(pattern, start))
    assert list(itertools.islice(found, 60)) == expected
    for earlier, later in itertools.pairwise(expected[:5]):  # it can be entered anywhere
        assert after(pattern, START, earlier) == later


@given(
    FIELDS, st.sampled_from(ZONES), st.sampled_from([(3, 6), (3, 27), (4, 3), (10, 2), (10, 30)])
)
@settings(max_examples=examples(100))
def test_lines_follow_the_stated_policy_where_clocks_change(
    fields: Fields, zone: str, day: tuple[int, int]
) -> None:
    """With the hour `*`: each instant whose clock shows it. Else once, and behind a gap."""
    where = ZoneInfo(zone)
    minute, hour = fields[1], fields[2]
    line = f"{minute[0]} {hour[0]} * * *"
    begin = datetime(2026, *day, tzinfo=where).astimezone(UTC)
    end = datetime(2026, *day, tzinfo=where) + timedelta(days=4)
    end = end.astimezone(UTC)
    if hour[0].startswith("*") or len(hour[1]) == 24:
        expected = [
            one
            for n in range(int((end - begin) / timedelta(minutes=1)))
            if (one := begin + timedelta(minutes=n)).astimezone(where).minute in minute[1]
            and one.astimezone(where).hour in hour[1]
        ]
    else:
        local = datetime(2026, *day)
        shown = rrule.rrule(
            rrule.MINUTELY, dtstart=local - timedelta(days=1), until=local + timedelta(days=5),
            byminute=sorted(minute[1]), byhour=sorted(hour[1]),
        )  # fmt: skip
        exact = {one.replace(tzinfo=where).astimezone(UTC) for one in shown}  # fold 0
        expected = sorted(one for one in exact if begin <= one < end)
    found = instants(parse(line), START, zone=where, after=begin - timedelta(seconds=1))
    assert list(itertools.takewhile(lambda one: one < end, found)) == expected


def test_a_night_on_which_madrid_changes_its_clocks() -> None:
    def nights(line: str, day: str, n: int) -> list[str]:
        now = datetime.fromisoformat(f"{day}T22:00:00Z")
        found = next_runs(line, n, now=now, timezone="Europe/Madrid")
        return [f"{one.astimezone(ZoneInfo('Europe/Madrid')):%d %H:%M%z}" for one in found]

    # The gap: 02:00 to 03:00 on the 29th of March; the overlap: the same on the 25th of October.
    assert nights("30 2 * * *", "2026-03-28", 2) == ["29 03:30+0200", "30 02:30+0200"]
    assert nights("30 2 * * *", "2026-10-24", 2) == ["25 02:30+0200", "26 02:30+0100"]
    every = nights("30 * * * *", "2026-10-25", 3), nights("30 * * * *", "2026-10-24", 5)
    assert every[1] == [
        "25 00:30+0200", "25 01:30+0200", "25 02:30+0200", "25 02:30+0100", "25 03:30+0100"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "first", "english", "spanish"),
    [
        ("0 3 * * *", "20 03:00:00", "Every day at 03:00", "Cada día a las 03:00"),
        ("30 6 * * mon-FRI", "20 06:30:00", "Monday to Friday at 06:30",
         "De lunes a viernes a las 06:30"),
        ("*/15 9-17 * * 1-5", "19 10:15:00", "Every 15 minutes from 09:00 to 17:59, Monday to"
         " Friday", "Cada 15 minutos de 09:00 a 17:59, de lunes a viernes"),
        ("*/10 * * * * *", "19 10:07:40", "Every 10 seconds", "Cada 10 segundos"),
        ("5/20 30 12 * * ?", "19 12:30:05", "Every day at 12:30:05, 12:30:25 and 12:30:45",
         "Cada día a las 12:30:05, 12:30:25 y 12:30:45"),
        ("@hourly", "19 11:00:00", "Every hour", "Cada hora"),
        ("@every 1h30m", "19 11:37:30", "Every 90 minutes", "Cada 90 minutos"),
        ("0 */6 * * *", "19 12:00:00", "Every 6 hours", "Cada 6 horas"),
        ("0 0 L * *", "30 00:00:00", "On the last day of the month at 00:00",
         "El último día del mes a las 00:00"),
        ("0 0 L-2 * *", "28 00:00:00", "2 days before the last day of the month at 00:00",
         "2 días antes del último día del mes a las 00:00"),
        ("0 9 * * FRIL,MON#4", "23 09:00:00", "On the fourth Monday of the month and on the last"
         " Friday of the month at 09:00",
         "El cuarto lunes del mes y el último viernes del mes a las 09:00"),
        ("0 9 20 * 0", "20 09:00:00", "On Sunday or on day 20 of the month at 09:00",
         "El domingo o el día 20 del mes a las 09:00"),
        ("0 12 * nov SAT-SUN", "21 12:00:00", "On Saturday and Sunday in November at 12:00",
         "El sábado y domingo en noviembre a las 12:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9;BYMINUTE=30;COUNT=3", "01 09:30:30",
         "Every 2 weeks on Tuesday at 09:30, 3 times",
         "Cada 2 semanas el martes a las 09:30, 3 veces"),
        ("FREQ=HOURLY;INTERVAL=6;UNTIL=20300101", "19 16:07:30", "Every 6 hours, until 2030-01-01",
         "Cada 6 horas, hasta el 2030-01-01"),
        ("FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", "13 10:07:30",
         "On Friday, only on day 13 of the month", "El viernes, solo el día 13 del mes"),
    ],
)  # fmt: skip
def test_rules_are_told_in_plain_words(rule: str, first: str, english: str, spanish: str) -> None:
    now = datetime(2026, 11, 19, 10, 7, 30, tzinfo=UTC)
    assert describe(rule) == english
    assert describe(rule, "es") == spanish
    runs = next_runs(rule, 3, now=now)
    assert f"{runs[0]:%d %H:%M:%S}" == first
    assert runs == sorted(set(runs))


def test_next_runs_are_counted_from_the_start_and_bounded() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    runs = next_runs("FREQ=DAILY;COUNT=3", 5, now=start + timedelta(hours=30), start=start)
    assert runs == [start + timedelta(days=2)]
    with pytest.raises(InvalidValue, match="0 to 1000, not 100000"):
        next_runs("@daily", 100_000, now=start)
    with pytest.raises(InvalidValue, match="en, es, not in 'fr'"):
        describe("@daily", "fr")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "refusal"),
    [
        ("0 3 * *", "has 5 fields .* or 6 with the second before them, not 4"),
        ("60 3 * * *", "minute of a cron line is a number from 0 to 59, .* not '60'"),
        ("0 24 * * *", "the hour of a cron line"),
        ("0 0 0 * *", "the day of the month"),
        ("0 0 * FOO *", "number from 1 to 12 or JAN-DEC, .* not 'FOO'"),
        ("0 0 * * 8", "the day of the week of a cron line is a number from 0 to 7 or SUN-SAT"),
        ("0 22-4 * * *", "runs backwards; write 22-23,0-4"),
        ("0 0 15W * *", "W, the nearest working day, is not supported"),
        ("0 0 * * L", "needs a day, such as 5L"),
        ("*/0 * * * *", "not '\\*/0'"),
        ("@reboot", "there are @yearly"),
        ("@every soon", "such as @every 1h30m"),
        ("@every 0s", "from 1 to 31,622,400"),
        ("@every 999999999d", "from 1 to 31,622,400"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_line_is_named(rule: str, refusal: str) -> None:
    with pytest.raises(InvalidRecurrence, match=refusal):
        parse(rule)
    assert "\n" not in refusal


def test_a_line_that_never_fits_has_no_instant() -> None:
    assert after(parse("0 0 30 2 *"), START) is None
    assert after(parse("* * 31 4,6 *"), START) is None
    assert after(parse("0 0 29 2 MON"), START) == datetime(2026, 2, 2, tzinfo=UTC)
