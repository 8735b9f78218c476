"""Cron lines and fixed intervals, read into patterns. Pure.

    parse("0 3 * * *")          # minute, hour, day of the month, month, day of the week
    parse("*/10 * 9-17 * * 1-5")  # with seconds before them
    parse("@daily"), parse("@every 1h30m")

Where the clock changes: a line whose hour is `*` or `*/n` runs by real time, so in a repeated hour
twice and in a skipped one not at all. Any other runs once at each of its times: in a skipped hour
as much later as the gap is long, in a repeated one the first time.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import InvalidRecurrence
from relevo.kernel.recurrence.pattern import Pattern, WeekDay

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY_MAX: Final = timedelta(days=366)
ALIASES: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS: Final = (
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_EVERY: Final = re.compile(r"(?:[0-9]{1,9}[dhms])+")
_LAST: Final = re.compile(r"L(?:-([0-9]{1,2}))?")
_NTH: Final = re.compile(r"(?P<day>[0-9]|[A-Z]{3})(?:#(?P<nth>[1-5])|(?P<last>L))")


class Field(Struct, frozen=True):
    """One field of a line: its name, its least and greatest number, and names for numbers."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Return the number that a text stands for."""
        if text in self.names:
            return self.low + self.names.index(text)
        if not text.isascii() or not text.isdigit() or not self.low <= int(text) <= self.high:
            raise self.refused(text)
        return int(text)

    def refused(self, text: str) -> InvalidRecurrence:
        """Return the error for a part that is not understood."""
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return InvalidRecurrence(
            f"the {self.name} of a cron line is a number from {self.low} to {self.high}{names}, a"
            f" range such as {self.low}-{self.low + 2}, a step such as */2, or a list of these with"
            f" commas, not {text[:40]!r}"
        )


_SECOND: Final = Field("second", 0, 59)
_MINUTE: Final = Field("minute", 0, 59)
_HOUR: Final = Field("hour", 0, 23)
_MONTH_DAY: Final = Field("day of the month", 1, 31)
_MONTH: Final = Field("month", 1, 12, _MONTHS)
_WEEK_DAY: Final = Field("day of the week", 0, 7, _DAYS)


def is_cron(text: str) -> bool:
    """Whether a rule is meant as a cron line or an interval, and not as an iCalendar rule.

    >>> is_cron("0 3 * * *"), is_cron("@daily"), is_cron("FREQ=DAILY")
    (True, True, False)
    """
    text = text.strip()
    return text.startswith("@") or ("=" not in text and len(text.split()) > 1)


def parse(text: str) -> Pattern:
    """Read a line of cron, a name such as `@daily`, or `@every 90s`."""
    line = text.strip().lower()
    if line.startswith("@every"):
        return _every(text, line.removeprefix("@every").replace(" ", ""))
    if line.startswith("@") and line not in ALIASES:
        raise InvalidRecurrence(
            f"{text[:40]!r} is not known; there are {', '.join(ALIASES)} and @every, such as"
            " @every 90s"
        )
    fields = ALIASES.get(line, line).upper().split()
    if len(fields) not in (5, 6):
        raise InvalidRecurrence(
            f"a cron line has 5 fields (minute, hour, day of the month, month, day of the week), or"
            f" 6 with the second before them, not {len(fields)} as in {text[:80]!r}"
        )
    second, minute, hour, month_day, month, week_day = (
        fields if len(fields) == 6 else ["0", *fields]
    )
    hours = _numbers(_HOUR, hour)
    by_clock = not hour.startswith("*") and len(hours) < 24
    month_days, week_days = _month_days(month_day), _week_days(week_day)
    starred = month_day[0] in "*?" or week_day[0] in "*?"
    return Pattern(
        text=text,
        frequency=("MONTHLY" if any(day.nth for day in week_days) else "DAILY")
        if by_clock
        else "HOURLY",
        months=_some(_numbers(_MONTH, month), 12),
        month_days=month_days,
        week_days=week_days,
        hours=hours if by_clock else _some(hours, 24),
        minutes=_numbers(_MINUTE, minute),
        seconds=_numbers(_SECOND, second),
        either=bool(month_days and week_days) and not starred,
    )


def every(interval: timedelta) -> str:
    """Return the rule of a fixed interval: whole seconds, from the start on.

    >>> every(timedelta(minutes=90))
    '@every 1h30m'
    """
    seconds = interval / timedelta(seconds=1)
    if not timedelta(seconds=1) <= interval <= EVERY_MAX or seconds != int(seconds):
        raise InvalidRecurrence(
            f"an interval is whole seconds, from 1 to {EVERY_MAX.total_seconds():,.0f}"
            f" ({EVERY_MAX.days} days), not {seconds:,} seconds",
            kind="interval",
        )
    return f"@every {''.join(f'{count}{unit}' for count, unit in _split(int(seconds)))}"


def _split(seconds: int) -> Iterator[tuple[int, str]]:
    for unit, size in _UNITS.items():
        count, seconds = divmod(seconds, size)
        if count:
            yield count, unit


def _every(text: str, length: str) -> Pattern:
    if not _EVERY.fullmatch(length):
        raise InvalidRecurrence(
            "@every takes a length of time in d, h, m and s, such as @every 1h30m, not"
            f" {text[:40]!r}"
        )
    parts = re.findall(r"([0-9]+)([dhms])", length)
    seconds = sum(int(count) * _UNITS[unit] for count, unit in parts)
    if not 1 <= seconds <= EVERY_MAX.total_seconds():
        every(timedelta(seconds=min(seconds, 10**10)))  # refuses it
    return Pattern(text=text, frequency="SECONDLY", interval=seconds)


def _some(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return numbers, or none if they are all: then there is no condition."""
    return () if len(numbers) == count else numbers


def _numbers(field: Field, text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        found.update(_range(field, part))
    return tuple(sorted(found))


def _range(field: Field, part: str) -> Iterator[int]:
    span, slash, step_text = part.partition("/")
    low_text, dash, high_text = span.partition("-")
    if span in ("*", "?"):
        if span == "?" and field not in (_MONTH_DAY, _WEEK_DAY):
            raise field.refused(part)
        low, high = field.low, field.high - (field is _WEEK_DAY)
    else:
        low = field.number(low_text)
        high = field.number(high_text) if dash else field.high if slash else low
    if field is _WEEK_DAY and dash and high == 0 < low:
        high = 7  # SAT-SUN
    step = 1
    if slash:
        if not step_text.isascii() or not step_text.isdigit() or not 1 <= int(step_text) <= 60:
            raise field.refused(part)
        step = int(step_text)
    if high < low:
        raise InvalidRecurrence(
            f"the range {part[:40]!r} of the {field.name} runs backwards; write"
            f" {low}-{field.high},{field.low}-{high}"
        )
    yield from range(low, high + 1, step)


def _month_days(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        if (last := _LAST.fullmatch(part)) and int(last[1] or 0) < 31:
            found.add(-1 - int(last[1] or 0))
        elif part.endswith("W"):
            raise InvalidRecurrence(
                f"{part[:40]!r}: W, the nearest working day, is not supported; name the days, such"
                " as 1-5 in the day of the week, or L for the last day of the month"
            )
        else:
            found.update(_range(_MONTH_DAY, part))
    return _some(tuple(sorted(found)), 31)


def _week_days(text: str) -> tuple[WeekDay, ...]:
    found: set[WeekDay] = set()
    for part in text.split(","):
        nth = _NTH.fullmatch(part)
        if nth is not None:
            number = _WEEK_DAY.number(nth["day"])
            found.add(WeekDay((number + 6) % 7, -1 if nth["last"] else int(nth["nth"])))
        elif part == "L":
            raise InvalidRecurrence("L in the day of the week needs a day, such as 5L or FRIL")
        else:
            found.update(WeekDay((number + 6) % 7) for number in _range(_WEEK_DAY, part))
    plain = {day.day for day in found if day.nth is None}
    if len(plain) == 7:
        return ()
    return tuple(sorted(found, key=lambda one: (one.day, one.nth or 0)))
