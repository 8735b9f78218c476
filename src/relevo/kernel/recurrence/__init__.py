"""When something recurs: iCalendar rules, cron lines and fixed intervals, in one core.

    pattern = parse("FREQ=DAILY;INTERVAL=3;")                       # RFC 5545, a subset
    pattern = parse("0 3 * * *")                                    # cron; also @daily, @every 90s
    after(pattern, anchor, now)                                     # the next instant, in UTC
    after(pattern, anchor, now, zone=ZoneInfo("Europe/Madrid"))
    describe("0 3 * * *"), next_runs("0 3 * * *", 10, now=now)      # for people

DAILY and longer are wall-clock time in their zone: a local time that does not exist runs as much
later as the gap is long, one that is there twice runs at its first instance. HOURLY and MINUTELY
are elapsed time. The way to the next instant does not grow with the age of a series.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.kernel.recurrence import cron, reading
from relevo.kernel.recurrence.cron import every as every_text
from relevo.kernel.recurrence.cron import is_cron
from relevo.kernel.recurrence.describing import Language, described
from relevo.kernel.recurrence.instants import after, instants
from relevo.kernel.recurrence.pattern import Pattern, WeekDay
from relevo.kernel.recurrence.zones import zone_of

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "Language",
    "Pattern",
    "WeekDay",
    "after",
    "describe",
    "every_text",
    "instants",
    "is_cron",
    "next_runs",
    "parse",
]

LENGTH_MAX = 256
RUNS_MAX = 1_000


def parse(text: str) -> Pattern:
    """Read a rule; raises `InvalidRecurrence` that says which part is wrong and why."""
    if len(text) > LENGTH_MAX:
        raise InvalidRecurrence(
            f"a recurrence pattern has at most {LENGTH_MAX} characters, not {len(text)}"
        )
    return cron.parse(text) if is_cron(text) else reading.parse(text)


def describe(rule: str | Pattern, language: Language = "en") -> str:
    """Return a rule in plain words, in English (`en`) or Spanish (`es`).

    >>> describe("30 6 * * 1-5"), describe("FREQ=MONTHLY;BYMONTHDAY=-1", "es")
    ('Monday to Friday at 06:30', 'El último día del mes')
    """
    return described(parse(rule) if isinstance(rule, str) else rule, language)


def next_runs(
    rule: str | Pattern,
    n: int = 10,
    *,
    now: datetime,
    timezone: str | None = None,
    start: datetime | None = None,
) -> list[datetime]:
    """Return the next `n` instants of a rule after `now`, in UTC; fewer if it ends before.

    `start` is where the series begins, by default now. COUNT is counted from there.
    """
    if not 0 <= n <= RUNS_MAX:
        raise InvalidValue(f"the number of next runs is 0 to {RUNS_MAX}, not {n}", pointer="n")
    pattern = parse(rule) if isinstance(rule, str) else rule
    zone = None if timezone is None else zone_of(timezone)
    if pattern.count is None:
        found = instants(pattern, start or now, zone=zone, after=now)
    else:
        found = (one for one in instants(pattern, start or now, zone=zone) if one > now)
    return list(itertools.islice(found, n))
