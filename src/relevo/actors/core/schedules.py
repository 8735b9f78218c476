"""When a reminder fires, and what happens to the times that were missed. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.actors.core.deltas import Missed
from relevo.errors import InvalidValue
from relevo.kernel.backoff import Backoff
from relevo.kernel.recurrence import instants, parse
from relevo.kernel.recurrence.zones import zone_of
from relevo.limits import ACTOR_MISSED_MAX, ACTOR_REMINDER_SECONDS_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_RETRY_SECONDS: Final = 2.0
LONGEST_RETRY_SECONDS: Final = 300.0
_COUNTED_MAX: Final = 10_000
"""Missed occurrences of a rule that are counted one by one."""


class ReminderSchedule(Struct, frozen=True, kw_only=True, array_like=True):
    """The plan of a reminder: once at `start`, or again by period or recurrence."""

    start: datetime
    every: float | None = None
    recurrence: str | None = None
    timezone: str | None = None
    missed: Missed = "coalesce"
    attempts: int | None = None
    """How often an occurrence is tried; None is without limit."""
    backoff: Backoff = Backoff(
        first=FIRST_RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS, jitter=(0.8, 1.2)
    )
    until: datetime | None = None

    @property
    def recurs(self) -> bool:
        """Whether there is more than one occurrence."""
        return self.every is not None or self.recurrence is not None


class Occurrence(Struct, frozen=True):
    """What is to be done about a reminder that is due."""

    fires: bool
    scheduled_at: datetime
    missed: int
    """Further occurrences that are folded into this one."""
    next_due: datetime | None
    """The next time; None if this was the last."""


def checked(schedule: ReminderSchedule) -> ReminderSchedule:
    """Return a schedule that can be kept; raises `InvalidValue` or `InvalidRecurrence`."""
    if schedule.every is not None and schedule.recurrence is not None:
        raise InvalidValue("a reminder has every= or recurrence=, not both", pointer="every")
    if schedule.every is not None and not schedule.every >= ACTOR_REMINDER_SECONDS_MIN:
        raise InvalidValue(
            f"the period of a reminder is at least {ACTOR_REMINDER_SECONDS_MIN:g} s, not"
            f" {schedule.every!r}; for shorter ones use self.timers",
            pointer="every",
        )
    if schedule.missed not in ("coalesce", "skip", "all"):
        raise InvalidValue(f"missed is coalesce, skip or all, not {schedule.missed!r}")
    if schedule.attempts is not None and schedule.attempts < 1:
        raise InvalidValue("attempts is at least 1, or None for no limit", pointer="attempts")
    if schedule.timezone is not None:
        zone_of(schedule.timezone)
    if schedule.recurrence is not None:
        parse(schedule.recurrence)
        if first_due(schedule) is None:
            raise InvalidValue("the recurrence has no instant before until=", pointer="recurrence")
    return schedule


def first_due(schedule: ReminderSchedule) -> datetime | None:
    """Return the first time of a schedule."""
    if schedule.recurrence is None:
        return _within(schedule, schedule.start)
    return next(_later(schedule, schedule.start - timedelta(microseconds=1)), None)


def occurrence(schedule: ReminderSchedule, due: datetime, now: datetime) -> Occurrence:
    """Return what happens to the occurrence of `due`, at a time that is not before it."""
    if not schedule.recurs:
        return Occurrence(True, due, 0, None)
    following = next(_later(schedule, due), None)
    if following is None or following > now:
        return Occurrence(True, due, 0, following)
    if schedule.missed == "all":
        return _one_of_all(schedule, due, now, following)
    missed = 0
    upcoming: datetime | None = None
    if schedule.every is not None:
        missed = int((now - due).total_seconds() // schedule.every)
        upcoming = next(_later(schedule, now), None)
    else:
        for instant in islice(_later(schedule, due), _COUNTED_MAX):
            if instant > now:
                upcoming = instant
                break
            missed += 1
        else:  # too many to be counted, as of a rule by the second after a long outage
            upcoming = next(_later(schedule, now), None)
    return Occurrence(schedule.missed == "coalesce", due, missed, upcoming)


def _one_of_all(
    schedule: ReminderSchedule, due: datetime, now: datetime, following: datetime
) -> Occurrence:
    """Each missed occurrence fires for itself; of too many only the latest do."""
    missed = list(islice(takewhile(lambda at: at <= now, _later(schedule, due)), ACTOR_MISSED_MAX))
    if len(missed) < ACTOR_MISSED_MAX:
        return Occurrence(True, due, 0, following)
    if schedule.every is None:
        return Occurrence(True, due, 0, following)
    behind = int((now - due).total_seconds() // schedule.every)
    if behind < ACTOR_MISSED_MAX:
        return Occurrence(True, due, 0, following)
    skipped = behind - ACTOR_MISSED_MAX + 1
    latest = due + timedelta(seconds=schedule.every * skipped)
    return Occurrence(True, due, skipped - 1, latest)


def _later(schedule: ReminderSchedule, instant: datetime) -> Iterator[datetime]:
    """Yield the times of a recurring schedule after an instant."""
    if schedule.every is not None:
        passed = max(-1, int((instant - schedule.start).total_seconds() // schedule.every))
        number = passed + 1
        while True:
            at = _within(schedule, schedule.start + timedelta(seconds=schedule.every * number))
            if at is None:
                return
            if at > instant:
                yield at
            number += 1
    assert schedule.recurrence is not None
    zone = None if schedule.timezone is None else zone_of(schedule.timezone)
    for at in instants(parse(schedule.recurrence), schedule.start, zone=zone, after=instant):
        if _within(schedule, at) is None:
            return
        yield at


def _within(schedule: ReminderSchedule, at: datetime) -> datetime | None:
    return None if schedule.until is not None and at > schedule.until else at
