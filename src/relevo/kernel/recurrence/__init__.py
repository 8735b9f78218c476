"""When something recurs: a subset of RFC 5545, with the trailing semicolon that users write.

    pattern = parse("FREQ=DAILY;INTERVAL=3;")
    after(pattern, anchor, now)                                     # the next instant, in UTC
    after(pattern, anchor, now, zone=ZoneInfo("Europe/Madrid"))

DAILY and longer are wall-clock time in their zone: a local time that does not exist runs as much
later as the gap is long, one that is there twice runs at its first instance. HOURLY and MINUTELY
are elapsed time. The way to the next instant does not grow with the age of a series.
"""

from relevo.kernel.recurrence.instants import after, instants
from relevo.kernel.recurrence.reading import Pattern, WeekDay, parse

__all__ = ["Pattern", "WeekDay", "after", "instants", "parse"]
