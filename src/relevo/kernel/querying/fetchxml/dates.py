"""Relative dates of a query, as half-open intervals of instants around now.

    interval("last-x-days", now, 3)      from midnight three days ago up to and including now
    interval("this-week", now)           Sunday 00:00 up to the next, which is outside

Names are those of FetchXML; OData's functions say the same in other words.
Days, weeks, months and years are those of the time zone that `now` is given in, and weeks start on
Sunday; intervals are in UTC.
"""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

Unit = Literal["minute", "hour", "day", "week", "month", "year"]
Side = Literal["last", "next", "olderthan"]

UNITS: Final[tuple[Unit, ...]] = ("minute", "hour", "day", "week", "month", "year")
TICK: Final = timedelta(microseconds=1)
"""The finest difference that is stored: one tick past an instant includes that instant."""
_LAST_DAY: Final = datetime(9999, 12, 31)
_LENGTHS: Final[dict[Unit, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}


class DateInterval(Struct, frozen=True):
    """The instants from `since` on and before `until`, in UTC; an end that is None is open."""

    since: datetime | None = None
    until: datetime | None = None


CALENDAR: Final[dict[str, tuple[Unit, int]]] = {
    "yesterday": ("day", -1),
    "today": ("day", 0),
    "tomorrow": ("day", 1),
    **{
        f"{word}-{unit}": (unit, offset)
        for unit in UNITS[3:]
        for word, offset in (("last", -1), ("this", 0), ("next", 1))
    },
}
"""Whole units of the calendar, by how far they lie from that of now."""
COUNTED: Final[dict[str, tuple[Side, Unit]]] = {
    **{f"last-x-{unit}s": ("last", unit) for unit in UNITS[1:]},
    **{f"next-x-{unit}s": ("next", unit) for unit in UNITS[1:]},
    **{f"olderthan-x-{unit}s": ("olderthan", unit) for unit in UNITS},
}
"""Those that take a number, by where they lie and what is counted."""
SEVEN_DAYS: Final[dict[str, str]] = {
    "last-seven-days": "last-x-days",
    "next-seven-days": "next-x-days",
}
DAYS: Final = frozenset({"on", "on-or-before", "on-or-after"})
"""Those that take a date."""


def interval(name: str, now: datetime, count: int = 0) -> DateInterval:
    """Return the instants that a relative date stands for at `now`.

    `last` and `next` reach to the start, or the end, of the hour or day that is `count` units away
    and include now; `olderthan` is to the tick. Raises `OverflowError` outside the years 1 to 9999.
    """
    if name in CALENDAR:
        unit, offset = CALENDAR[name]
        start = floor(now, unit)
        return _interval(shift(start, unit, offset), shift(start, unit, offset + 1))
    if name in SEVEN_DAYS:
        return interval(SEVEN_DAYS[name], now, 7)
    side, unit = COUNTED[name]
    grain: Unit = "hour" if unit == "hour" else "day"
    match side:
        case "last":
            # In UTC: arithmetic with local time forgets which of two equal hours it is.
            return _interval(shift(floor(now, grain), unit, -count), now.astimezone(UTC) + TICK)
        case "next":
            return _interval(now, shift(shift(floor(now, grain), unit, count), grain, 1))
        case "olderthan":
            return _interval(None, shift(now, unit, -count))


def of_day(name: str, moment: datetime) -> DateInterval:
    """Return the instants on, up to the end of, or from the start of the day of `moment`."""
    start = floor(moment, "day")
    open_end = name == "on-or-after" or start.replace(tzinfo=None) == _LAST_DAY
    return _interval(
        None if name == "on-or-before" else start, None if open_end else shift(start, "day", 1)
    )


def _interval(since: datetime | None, until: datetime | None) -> DateInterval:
    return DateInterval(since and since.astimezone(UTC), until and until.astimezone(UTC))


def floor(moment: datetime, unit: Unit) -> datetime:
    """Return where the unit that `moment` lies in starts."""
    if unit == "minute":
        return moment.replace(second=0, microsecond=0)
    if unit == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match unit:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.isoweekday() % 7)
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(month=1, day=1)


def shift(moment: datetime, unit: Unit, count: int) -> datetime:
    """Return the moment some units later; the 31st becomes the last of a shorter month.

    Hours have 60 minutes; days and longer keep the time of day, however long the clock makes them.
    """
    if unit in ("minute", "hour"):
        return (moment.astimezone(UTC) + _LENGTHS[unit] * count).astimezone(moment.tzinfo)
    if unit in _LENGTHS:
        return moment + _LENGTHS[unit] * count
    months = moment.month - 1 + count * (12 if unit == "year" else 1)
    year, month = moment.year + months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError(f"the year {year} is outside the calendar")
    last = calendar.monthrange(year, month)[1]
    return moment.replace(year=year, month=month, day=min(moment.day, last))
