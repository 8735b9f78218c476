"""Decides when a recurring job runs, and what happens to missed instants.

    series = plan("FREQ=DAILY;INTERVAL=3;", anchor=created, operation_type=ASYNC_REQUEST)
    row = first(series)  # the waiting row, postponed until row.nominal
    following(series, row, row.nominal)  # the next row, which the claim inserts
    due(series, row, now=now)  # what happens to the row when it is due

Pure: the caller stores the result with the waiting row, so that the claim needs no calendar.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from relevo.errors import InvalidRecurrence
from relevo.jobs.core import codes
from relevo.jobs.core.operation_types import DAILY_AT_MOST, RECURRING, label_of
from relevo.jobs.states import CommandRefusal
from relevo.kernel.recurrence import Pattern, after, instants, is_cron, parse
from relevo.kernel.recurrence.zones import zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Missed = Literal["coalesce", "skip", "all"]
Overlap = Literal["queue", "skip", "parallel"]
Action = Literal["run", "later", "wait", "end"]

MISSED_MAX: Final = 100
"""Instants that `all` catches up with; of more, the latest, the oldest of them first."""
MISFIRE_GRACE: Final = timedelta(hours=1)
ON_TIME: Final = timedelta(seconds=2)
"""Seconds that never count as late: Relevo needs up to a second to notice a due row, and one."""
_RULE_SHIFT_MAX: Final = timedelta(hours=3)

_CODES: Final = {
    "pattern": codes.BAD_PATTERN,
    "interval": codes.BAD_INTERVAL,
    "frequency": codes.TOO_FREQUENT,
}


class Series(Struct, frozen=True, kw_only=True):
    """A recurrence with its policies; `misfire_grace` is how late a run may be unremarked."""

    pattern: Pattern
    anchor: datetime
    zone: ZoneInfo | None = None
    missed: Missed = "coalesce"
    overlap: Overlap = "queue"
    misfire_grace: timedelta = MISFIRE_GRACE


class Occurrence(Struct, frozen=True):
    """An instant of a series; `ordinal` is its number, from 1, if the pattern has COUNT, else 0."""

    nominal: datetime
    ordinal: int = 0


class Due(Struct, frozen=True, kw_only=True):
    """The decision about a waiting row that is due.

    `run`: it becomes Ready as `occurrence`, with `friendly` if it is late; its claim inserts
    `next`. `later`: it goes on waiting, for `occurrence`. `wait`: for the former run to finish; ask
    again then. `end`: the series is over without another run. No `next` is no further row.
    """

    action: Action
    occurrence: Occurrence
    next: Occurrence | None = None
    friendly: str | None = None


def plan(
    text: str,
    *,
    anchor: datetime,
    operation_type: int,
    zone: str | None = None,
    missed: Missed = "coalesce",
    overlap: Overlap = "queue",
    misfire_grace: timedelta = MISFIRE_GRACE,
) -> Series:
    """Read a pattern for a type of job and check that it has an instant.

    Raises `InvalidRecurrence`, of which `code_of` tells the code. `anchor` is where the series
    begins: what the caller asked for, or the creation of the job.
    """
    pattern = parse(text)
    if operation_type in DAILY_AT_MOST and pattern.elapsed:
        raise InvalidRecurrence(
            f"{label_of(operation_type)} recurs DAILY or less often, not {pattern.frequency}",
            kind="frequency",
        )
    if operation_type in DAILY_AT_MOST and is_cron(text):
        raise InvalidRecurrence(
            f"{label_of(operation_type)} recurs by an iCalendar rule such as FREQ=DAILY, not by a"
            f" cron line such as {text!r}"
        )
    series = Series(
        pattern=pattern,
        anchor=anchor,
        zone=None if zone is None else zone_of(zone),
        missed=missed,
        overlap=overlap,
        misfire_grace=misfire_grace,
    )
    first(series)
    return series


def code_of(error: InvalidRecurrence) -> int:
    """Return the code of a pattern that was refused."""
    return _CODES.get(error.kind, codes.BAD_PATTERN)


def change_refusal(operation_type: int, *, recurring: bool) -> CommandRefusal | None:
    """Return why the pattern of a job cannot be changed, None if it can."""
    if operation_type not in RECURRING:
        code = codes.CANNOT_RECUR
    elif not recurring:
        code = codes.NOT_RECURRING
    else:
        return None
    return CommandRefusal(code, f"{codes.TEXTS[code]} It is a {label_of(operation_type)!r}.")


def first(series: Series) -> Occurrence:
    """Return the first instant of all, which may be past: then it is due at once."""
    found = after(series.pattern, series.anchor, zone=series.zone)
    if found is None:
        raise InvalidRecurrence(
            f"{series.pattern.text!r} has no instant from {series.anchor.isoformat()} on; change"
            " the pattern or the start"
        )
    return Occurrence(found, 0 if series.pattern.count is None else 1)


def restarted(series: Series, now: datetime) -> Occurrence:
    """Return the next instant of a waiting row after its pattern changed; never a past one.

    Raises `InvalidRecurrence` if there is none any more.
    """
    start = first(series)
    found = start if start.nominal > now else next(_walk(series, start, now), None)
    if found is None:
        raise InvalidRecurrence(
            f"{series.pattern.text!r} has no instant after {now.isoformat()}; change the pattern,"
            " or cancel the job to end the series"
        )
    return found


def following(series: Series, occurrence: Occurrence, at: datetime) -> Occurrence | None:
    """Return the instant after that of a row which is due at `at`; None if it is the last.

    `at` is its nominal instant, what it was postponed until, or now. The late run is itself the
    catch-up, except under `all`; and a row that runs early does not run again at its instant.
    """
    passed = occurrence.nominal if series.missed == "all" else max(occurrence.nominal, at)
    return next(_walk(series, occurrence, passed), None)


def due(
    series: Series,
    occurrence: Occurrence,
    *,
    now: datetime,
    postponed_until: datetime | None = None,
    caught_up: datetime | None = None,
    unfinished: bool = False,
) -> Due:
    """Return the decision about a waiting row at `now`; `unfinished`: the former run still runs.

    A postponed row is late only from `postponed_until` on. `caught_up` is when the former run was
    claimed: that run has caught up with all instants due by then, except with `all`.
    """
    aligned = realigned(series, occurrence)
    if caught_up is not None and postponed_until is None and series.missed != "all":
        found = (
            aligned
            if aligned.nominal > caught_up
            else next(_walk(series, aligned, caught_up), None)
        )
        if found is None:
            return Due(action="end", occurrence=aligned)
        aligned = found
    at = aligned.nominal if postponed_until is None else postponed_until
    if at > now:
        return Due(action="later", occurrence=aligned, next=following(series, aligned, at))
    if unfinished and series.overlap == "queue":
        return Due(action="wait", occurrence=aligned)
    if unfinished and series.overlap == "skip":
        return _after_now(series, aligned, now)
    chosen = _chosen(series, aligned, at, now)
    if chosen is None:
        return _after_now(series, aligned, now)
    return Due(
        action="run",
        occurrence=chosen,
        next=following(series, chosen, now),
        friendly=late(now - (at if chosen == aligned else chosen.nominal), series.misfire_grace),
    )


def realigned(series: Series, occurrence: Occurrence) -> Occurrence:
    """Return where the rules of the zone put an instant by now, if they changed meanwhile.

    Otherwise a row computed by the former rules would run, and its day once more by the new ones.
    """
    if series.zone is None:
        return occurrence
    just_before = occurrence.nominal - timedelta(microseconds=1)
    if after(series.pattern, series.anchor, just_before, zone=series.zone) == occurrence.nominal:
        return occurrence
    low, high = occurrence.nominal - _RULE_SHIFT_MAX, occurrence.nominal + _RULE_SHIFT_MAX
    around = instants(series.pattern, series.anchor, zone=series.zone, after=low)
    near = takewhile(lambda one: one <= high, around)
    moved = min(near, key=lambda one: abs(one - occurrence.nominal), default=occurrence.nominal)
    return Occurrence(moved, occurrence.ordinal)


def late(by: timedelta, grace: timedelta) -> str | None:
    """Return the note about a late run; None if it is not worth mentioning."""
    return late_text(by) if by > max(grace, ON_TIME) else None


def late_text(by: timedelta) -> str:
    """Return how late a run is, by the two largest units: `late by 2 h 5 min`."""
    seconds = int(by.total_seconds())
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not parts):
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return f"late by {' '.join(parts[:2])}"


def _grace(series: Series) -> timedelta:
    return max(series.misfire_grace, ON_TIME)


def _chosen(
    series: Series, occurrence: Occurrence, at: datetime, now: datetime
) -> Occurrence | None:
    """Which instant a due row runs for, by the policy for missed ones; None: for none."""
    if series.missed == "all":
        return _latest(series, occurrence, now, MISSED_MAX)[0]
    if series.missed == "coalesce" or now - at <= _grace(series):
        return occurrence
    recent = _latest(series, occurrence, now, 1)[0]
    missed = recent == occurrence or now - recent.nominal > _grace(series)
    return None if missed else recent


def _after_now(series: Series, occurrence: Occurrence, now: datetime) -> Due:
    found = next(_walk(series, occurrence, max(occurrence.nominal, now)), None)
    if found is None:
        return Due(action="end", occurrence=occurrence)
    return Due(action="later", occurrence=found, next=following(series, found, found.nominal))


def _latest(series: Series, occurrence: Occurrence, now: datetime, most: int) -> list[Occurrence]:
    """Return the last instants from that of `occurrence` to `now`, in order, at most `most`.

    They are looked for in a growing span before now: a series that was down for a year is not
    walked through, except if its instants have to be counted.
    """
    span = timedelta(minutes=most)
    while True:
        low = occurrence.nominal
        if series.pattern.count is None and now - span > low:
            low = now - span
        passed = takewhile(lambda one: one.nominal <= now, _walk(series, occurrence, low))
        found = deque(passed, maxlen=most)
        if len(found) == most or low == occurrence.nominal:
            return [occurrence, *found][-most:]
        span *= 4


def _walk(series: Series, last: Occurrence, floor: datetime) -> Iterator[Occurrence]:
    """Occurrences after `last` and later than `floor`, as far as COUNT goes."""
    count, step = series.pattern.count, series.pattern.step
    begin, ordinal = floor if count is None else last.nominal, last.ordinal
    if count is not None and step is not None and floor > begin:
        passed = (floor - begin) // step
        begin, ordinal = begin + passed * step, ordinal + passed
    for one in instants(series.pattern, series.anchor, zone=series.zone, after=begin):
        ordinal += 1
        if count is not None and ordinal > count:
            return
        if one > floor:
            yield Occurrence(one, 0 if count is None else ordinal)
