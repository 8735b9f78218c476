"""The instants of a pattern, from any point on, without stepping through the past. Pure.

The search is bounded in steps: a pattern that never fits, or hardly ever, is refused before it has
taken long. What is found may take some tens of milliseconds, so that is no work for an event loop.
"""

from __future__ import annotations

import calendar
import math
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from relevo import limits
from relevo.errors import InvalidRecurrence
from relevo.kernel.recurrence.pattern import SPAN, Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from zoneinfo import ZoneInfo

DAYS_TRIED_MAX: Final = 1_500
"""Days on which an elapsed-time pattern may have no instant in a row before it is given up."""
_CYCLE: Final = {"DAILY": 146_097, "WEEKLY": 20_871, "MONTHLY": 4_800, "YEARLY": 400}
"""Periods in 400 years, after which the calendar is the same again."""
_DAYS_OF_MONTH: Final = 31
_GAP_MAX: Final = timedelta(days=1)
"""The most by which a change of the clock has ever moved a time."""
_PART_MIN: Final = 60
"""Times of an hour that are looked at with the others of their day."""
_MOMENT: Final = 3
"""Steps that it takes to look at a time in its zone."""
_MINUTE: Final = timedelta(minutes=1)


class Steps:
    """The remaining budget of a search."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._search = limits.RECURRENCE_STEPS_MAX
        self._walk = limits.RECURRENCE_WALK_STEPS_MAX

    def take(self, steps: int) -> None:
        """Take steps; raises `InvalidRecurrence` if there are too many."""
        self._search -= steps
        if self._search < 0:
            raise InvalidRecurrence(
                f"{self._pattern.text!r} has no instant that is found within"
                f" {limits.RECURRENCE_STEPS_MAX:,} steps; it never fits, or hardly ever. Change"
                " INTERVAL or the BY parts"
            )

    def found(self) -> None:
        """An instant was found: the search for the next one begins."""
        self._walk -= limits.RECURRENCE_STEPS_MAX - self._search + 1
        self._search = limits.RECURRENCE_STEPS_MAX
        if self._walk < 0:
            raise InvalidRecurrence(
                f"{self._pattern.text!r} has too many instants to be counted from its start to"
                " now; start it later, or use UNTIL instead of COUNT"
            )


def after(
    pattern: Pattern,
    anchor: datetime,
    instant: datetime | None = None,
    *,
    zone: ZoneInfo | None = None,
) -> datetime | None:
    """Return the first instant later than `instant`, by default the first of all; in UTC.

    None if there is none. COUNT is the caller's to count: only it knows how many there were.
    """
    return next(instants(pattern, anchor, zone=zone, after=instant), None)


def instants(
    pattern: Pattern,
    anchor: datetime,
    *,
    zone: ZoneInfo | None = None,
    after: datetime | None = None,
) -> Iterator[datetime]:
    """Yield the instants of a series that begins at `anchor`, later than `after`, in UTC.

    Without `after`, COUNT ends them.
    """
    if anchor.tzinfo is None:
        raise InvalidRecurrence(f"the start of a series needs a time zone, not {anchor}")
    start = anchor.astimezone(UTC)
    floor = start - timedelta(microseconds=1) if after is None else after.astimezone(UTC)
    steps = Steps(pattern)
    found = (_elapsed if pattern.elapsed else _days)(pattern, start, floor, zone or UTC, steps)
    given, last = 0, None
    for one in found:
        if one < start or one <= floor or one == last:
            continue
        if pattern.until is not None and one > pattern.until:
            return
        if after is None and pattern.count is not None and given >= pattern.count:
            return
        given, last = given + 1, one
        yield one
        steps.found()


def _days(
    pattern: Pattern, start: datetime, floor: datetime, where: tzinfo, steps: Steps
) -> Iterator[datetime]:
    """Instants by the calendar: the days of a month that fit, each at the times of day."""
    local = start.astimezone(where)
    hours = pattern.hours or (local.hour,)
    times = [
        time(hour, minute, second, 0 if pattern.seconds else local.microsecond)
        for hour in hours
        for minute in pattern.minutes or (local.minute,)
        for second in pattern.seconds or (local.second,)
    ]
    # A day early: a gap may have moved an instant of the day before beyond midnight.
    begin = max(local.date(), floor.astimezone(where).date() - timedelta(days=1))
    for day in _fitting_days(pattern, local.date(), begin, steps):
        for part in _parts_of_day(day, times, len(times) // len(hours), where):
            end = datetime.combine(day, part[-1], where).astimezone(UTC)
            if end < floor - (_GAP_MAX if part is times else timedelta()):
                continue
            steps.take(_MOMENT if len(part) == 1 else len(part))
            moments = [datetime.combine(day, at, where) for at in part]
            # The start is an instant, also where the clock shows its time for the second time.
            yield from sorted(
                start if moment == local else moment.astimezone(UTC) for moment in moments
            )


def _parts_of_day(
    day: date, times: list[time], per_hour: int, where: tzinfo
) -> Iterable[list[time]]:
    """Return the times of a day in parts that follow each other: its hours if they are long.

    A day on which the clock changes is one part, since a gap moves times behind later ones.
    """
    midnights = (datetime.combine(one, time(), where) for one in (day, day + timedelta(days=1)))
    first, last = (one.utcoffset() for one in midnights)
    if per_hour <= _PART_MIN or first != last:
        return [times]
    return [times[n : n + per_hour] for n in range(0, len(times), per_hour)]


def _fitting_days(pattern: Pattern, anchor: date, begin: date, steps: Steps) -> Iterator[date]:
    """Days from `begin` on that a pattern has, month by month to the end of the calendar.

    If there is none until calendar and interval meet as they do at `begin`, there is none at all.
    """
    year, month = begin.year, begin.month
    meet = pattern.interval // math.gcd(pattern.interval, _CYCLE[pattern.frequency])
    last = begin.year + 400 * meet
    looks = _DAYS_OF_MONTH + _MOMENT * len(pattern.week_days) + len(pattern.month_days)
    while year <= min(last, limits.YEAR_MAX):
        steps.take(1)
        if _month_fits(pattern, anchor, year, month):
            steps.take(looks)
            for number in _days_of_month(pattern, anchor, year, month):
                day = date(year, month, number)
                if day >= begin:
                    last = limits.YEAR_MAX
                    yield day
        year, month = _next_month(pattern, anchor, year, month)


def _next_month(pattern: Pattern, anchor: date, year: int, month: int) -> tuple[int, int]:
    if month < 12:
        return year, month + 1
    step = pattern.interval if pattern.frequency == "YEARLY" else 1
    behind = (year - anchor.year) % step if step > 1 else 0
    return year + step - behind, 1


def _month_fits(pattern: Pattern, anchor: date, year: int, month: int) -> bool:
    if pattern.months and month not in pattern.months:
        return False
    if pattern.frequency == "MONTHLY":
        passed = (year - anchor.year) * 12 + month - anchor.month
        return passed >= 0 and passed % pattern.interval == 0
    if pattern.frequency == "YEARLY":
        if (year - anchor.year) % pattern.interval:
            return False
        free = pattern.months or pattern.month_days or pattern.week_days
        return bool(free) or month == anchor.month
    return True


def _days_of_month(pattern: Pattern, anchor: date, year: int, month: int) -> Iterable[int]:
    first, length = calendar.monthrange(year, month)
    if pattern.either:
        by_number = _by_month_day(pattern, length)
        return sorted(by_number | _by_week_day(pattern, year, month, length))
    wanted: Iterable[int] = range(1, length + 1)
    if pattern.frequency == "DAILY":
        passed = date(year, month, 1).toordinal() - anchor.toordinal()
        wanted = range(1 + -passed % pattern.interval, length + 1, pattern.interval)
    if pattern.month_days:
        named = _by_month_day(pattern, length)
        wanted = [one for one in wanted if one in named]
    if pattern.frequency in ("DAILY", "WEEKLY"):
        days = {day.day for day in pattern.week_days}
        if pattern.frequency == "WEEKLY" and not pattern.month_days:
            days = days or {anchor.weekday()}
        if days:
            wanted = [one for one in wanted if (first + one - 1) % 7 in days]
        if pattern.frequency == "WEEKLY" and pattern.interval > 1:
            wanted = [one for one in wanted if _in_week(pattern, anchor, date(year, month, one))]
        return wanted
    if pattern.week_days:
        fitting = _by_week_day(pattern, year, month, length)
        return [one for one in wanted if one in fitting]
    if pattern.month_days:
        return wanted
    return [anchor.day] if anchor.day <= length else []


def _by_month_day(pattern: Pattern, length: int) -> set[int]:
    found = {day if day > 0 else length + 1 + day for day in pattern.month_days}
    return {day for day in found if 1 <= day <= length}


def _in_week(pattern: Pattern, anchor: date, day: date) -> bool:
    """Whether a day is in a week that counts."""
    weeks = _week(day, pattern.week_start) - _week(anchor, pattern.week_start)
    return weeks % pattern.interval == 0


def _week(day: date, start: int) -> int:
    """Return the number of a day's week, whatever day weeks begin on."""
    return (day.toordinal() - 1 - start) // 7


def _by_week_day(pattern: Pattern, year: int, month: int, length: int) -> set[int]:
    found: set[int] = set()
    of_year = pattern.frequency == "YEARLY" and not pattern.months
    for one in pattern.week_days:
        first = 1 + (one.day - date(year, month, 1).weekday()) % 7
        every = range(first, length + 1, 7)
        if one.nth is None:
            found.update(every)
        elif of_year:
            day = _nth_of_year(year, one.day, one.nth)
            if day is not None and day.month == month:
                found.add(day.day)
        elif abs(one.nth) <= len(every):
            found.add(every[one.nth - 1 if one.nth > 0 else one.nth])
    return found


def _nth_of_year(year: int, week_day: int, nth: int) -> date | None:
    if nth > 0:
        first = date(year, 1, 1)
        day = first + timedelta(days=(week_day - first.weekday()) % 7 + 7 * (nth - 1))
    else:
        last = date(year, 12, 31)
        day = last - timedelta(days=(last.weekday() - week_day) % 7 + 7 * (-nth - 1))
    return day if day.year == year else None


def _elapsed(
    pattern: Pattern, start: datetime, floor: datetime, where: tzinfo, steps: Steps
) -> Iterator[datetime]:
    """Instants a fixed time apart, of which the BY parts take those that fit the local clock."""
    step = SPAN[pattern.frequency] * pattern.interval
    if pattern.step is not None:
        one = start + max(0, (floor - start) // step) * step
        while True:
            yield one
            one += step
    local = start.astimezone(where)
    # With BYMINUTE it is hours that are a fixed time apart: the first is that of the start.
    expands = pattern.frequency == "HOURLY" and bool(pattern.minutes)
    base = start - timedelta(minutes=local.minute) if expands else start
    if pattern.seconds:
        base = base.replace(second=0, microsecond=0)
    begin = max(start, floor).astimezone(where).date()
    empty = 0
    barren: set[timedelta] = set()
    for day in _fitting_days(pattern.days, begin, begin, steps):
        steps.take(_MOMENT)
        midnight = datetime(day.year, day.month, day.day, tzinfo=where)
        low = midnight.astimezone(UTC)
        high = low + timedelta(hours=30)  # no local day is longer, and what is beyond is not of it
        # Days without a change of the clock that begin as far from an instant are alike.
        whole = low > max(base, floor)
        alike = whole and midnight.utcoffset() == high.astimezone(where).utcoffset()
        phase = (low - base) % step
        found = False
        if not (alike and phase in barren):
            one = base + max(0, (max(low, floor) - base) // step) * step
            while one < high:
                moments = _minutes(pattern, one, where) if expands else (one,)
                steps.take(_MOMENT * len(moments))
                for moment in moments:
                    if moment <= floor - _MINUTE:
                        continue
                    shown = moment.astimezone(where)
                    if shown.date() == day and _time_fits(pattern, shown):
                        found = True
                        steps.take(len(pattern.seconds))
                        seconds = pattern.seconds or (0,)
                        yield from (moment + timedelta(seconds=second) for second in seconds)
                one += step
        if alike and not found:
            barren.add(phase)
        empty = 0 if found else empty + 1
        if empty > DAYS_TRIED_MAX:
            return


def _minutes(pattern: Pattern, hour: datetime, where: tzinfo) -> list[datetime]:
    """Minutes of an hour in which the local clock may show those of a pattern, in order.

    The clock may differ from that of the start by half an hour, or be changed within this one.
    """
    local = hour.astimezone(where)
    numbers: Iterable[int] = range(60)
    if local.utcoffset() == (hour + timedelta(hours=1)).astimezone(where).utcoffset():
        numbers = sorted((minute - local.minute) % 60 for minute in pattern.minutes)
    return [hour + timedelta(minutes=number) for number in numbers]


def _time_fits(pattern: Pattern, local: datetime) -> bool:
    return (not pattern.hours or local.hour in pattern.hours) and (
        not pattern.minutes or local.minute in pattern.minutes
    )
