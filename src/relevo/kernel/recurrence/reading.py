"""Parses and checks the parts of iCalendar patterns: a subset of RFC 5545. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from relevo.errors import InvalidRecurrence
from relevo.kernel.recurrence.pattern import Frequency, Pattern, WeekDay

if TYPE_CHECKING:
    from collections.abc import Callable

FREQUENCIES: Final[tuple[Frequency, ...]] = (
    "MINUTELY",
    "HOURLY",
    "DAILY",
    "WEEKLY",
    "MONTHLY",
    "YEARLY",
)
DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
INTERVAL_MAX: Final = 365
COUNT_MAX: Final = 1_000_000
_NUMBER: Final = re.compile(r"[0-9]{1,7}")
_SIGNED: Final = re.compile(r"-?[0-9]{1,2}")
_DAY: Final = re.compile(r"(?P<nth>[+-]?[1-9])?(?P<day>MO|TU|WE|TH|FR|SA|SU)")
_UNTIL: Final = re.compile(r"[0-9]{8}(T[0-9]{6}Z)?")


def parse(text: str) -> Pattern:
    """Read a pattern; raises `InvalidRecurrence` that says which part is wrong and why."""
    parts = text.upper().removesuffix(";").split(";")
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name not in _READERS:
            raise InvalidRecurrence(
                f"{part[:40]!r} is not understood; a pattern is made of {', '.join(_READERS)}, such"
                " as FREQ=DAILY;INTERVAL=3"
            )
        if name in found:
            raise InvalidRecurrence(f"{name} is given twice; give it once")
        found[name] = value
    if "FREQ" not in found:
        raise InvalidRecurrence("a pattern needs FREQ, such as FREQ=DAILY;INTERVAL=3")
    if "COUNT" in found and "UNTIL" in found:
        raise InvalidRecurrence("COUNT and UNTIL exclude each other; give one of them")
    values = {_NAMES[name]: _READERS[name](name, value) for name, value in found.items()}
    pattern = Pattern(text=text, **values)  # type: ignore[arg-type]
    _check_together(pattern)
    return pattern


def _check_together(pattern: Pattern) -> None:
    nth = any(day.nth is not None for day in pattern.week_days)
    if nth and pattern.frequency not in ("MONTHLY", "YEARLY"):
        raise InvalidRecurrence(
            f"BYDAY can count days only with MONTHLY or YEARLY, not with {pattern.frequency}"
        )


def _frequency(_: str, value: str) -> str:
    if value not in FREQUENCIES:
        raise InvalidRecurrence(f"FREQ is one of {', '.join(FREQUENCIES)}, not {value[:40]!r}")
    return value


def _positive(most: int) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= most:
            raise InvalidRecurrence(
                f"{name} is a number from 1 to {most}, not {value[:40]!r}",
                kind="interval" if name == "INTERVAL" else "pattern",
            )
        return int(value)

    return read


def _numbers(low: int, high: int, *, signed: bool = False) -> Callable[[str, str], tuple[int, ...]]:
    def read(name: str, value: str) -> tuple[int, ...]:
        found = set()
        for one in value.split(","):
            if (
                not _SIGNED.fullmatch(one)
                or not low <= abs(int(one)) <= high
                or (one.startswith("-") and not signed)
            ):
                raise InvalidRecurrence(
                    f"{name} has numbers from {low} to {high}, not {one[:40]!r}"
                )
            found.add(int(one))
        return tuple(sorted(found))

    return read


def _week_days(name: str, value: str) -> tuple[WeekDay, ...]:
    found = set()
    for one in value.split(","):
        match = _DAY.fullmatch(one)
        if match is None:
            raise InvalidRecurrence(f"{name} has days such as MO, 2TU or -1FR, not {one[:40]!r}")
        found.add(WeekDay(DAYS.index(match["day"]), int(match["nth"]) if match["nth"] else None))
    return tuple(sorted(found, key=lambda one: (one.day, one.nth or 0)))


def _week_start(name: str, value: str) -> int:
    if value not in DAYS:
        raise InvalidRecurrence(f"{name} is one of {', '.join(DAYS)}, not {value[:40]!r}")
    return DAYS.index(value)


def _until(name: str, value: str) -> datetime:
    try:
        if not _UNTIL.fullmatch(value):
            raise ValueError
        if "T" in value:
            return datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        day = datetime.strptime(value, "%Y%m%d").replace(tzinfo=UTC)
        return day + timedelta(days=1, microseconds=-1)  # the whole of that day
    except (ValueError, OverflowError):
        raise InvalidRecurrence(
            f"{name} is a time such as 20311231T235959Z or a date, not {value[:40]!r}"
        ) from None


_READERS: Final[dict[str, Callable[[str, str], object]]] = {
    "FREQ": _frequency,
    "INTERVAL": _positive(INTERVAL_MAX),
    "COUNT": _positive(COUNT_MAX),
    "UNTIL": _until,
    "BYMONTH": _numbers(1, 12),
    "BYMONTHDAY": _numbers(1, 31, signed=True),
    "BYDAY": _week_days,
    "BYHOUR": _numbers(0, 23),
    "BYMINUTE": _numbers(0, 59),
    "WKST": _week_start,
}
_NAMES: Final = {
    "FREQ": "frequency",
    "INTERVAL": "interval",
    "COUNT": "count",
    "UNTIL": "until",
    "BYMONTH": "months",
    "BYMONTHDAY": "month_days",
    "BYDAY": "week_days",
    "BYHOUR": "hours",
    "BYMINUTE": "minutes",
    "WKST": "week_start",
}
