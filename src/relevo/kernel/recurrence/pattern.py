"""A recurrence as data: what iCalendar rules, cron lines and fixed intervals are read into."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

Frequency = Literal["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]
SPAN: Final = {
    "SECONDLY": timedelta(seconds=1), "MINUTELY": timedelta(minutes=1), "HOURLY": timedelta(hours=1)
}  # fmt: skip
"""The lengths of the frequencies that count elapsed time."""


class WeekDay(Struct, frozen=True, order=True):
    """A day of the week, or the n-th of a month or year; the last is the -1st."""

    day: int
    nth: int | None = None


class Pattern(Struct, frozen=True, kw_only=True):
    """A recurrence that was read, whatever language it was written in; `text` is as written."""

    text: str
    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    week_days: tuple[WeekDay, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    """Of cron rules; other rules have the second of their start."""
    either: bool = False
    """Whether a day fits by its number or by its day of the week, as in cron, and not by both."""
    week_start: int = 0

    @property
    def elapsed(self) -> bool:
        """Whether it counts elapsed time and not days of the calendar."""
        return self.frequency in ("SECONDLY", "MINUTELY", "HOURLY")

    @property
    def step(self) -> timedelta | None:
        """How far apart all its instants are; None if that depends on the calendar or the clock."""
        parts = (self.months, self.month_days, self.week_days, self.hours, self.minutes)
        if not self.elapsed or any(parts):
            return None
        return self.interval * SPAN[self.frequency]

    @property
    def days(self) -> Pattern:
        """The days on which it may have instants, as a pattern of its own."""
        counted = any(day.nth is not None for day in self.week_days)
        return Pattern(
            text=self.text, frequency="MONTHLY" if counted else "DAILY", months=self.months,
            month_days=self.month_days, week_days=self.week_days, either=self.either,
        )  # fmt: skip
