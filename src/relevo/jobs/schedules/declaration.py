"""What a handler declares about its schedule, checked where it is written. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from relevo.errors import InvalidRecurrence, InvalidValue
from relevo.jobs.model import Missed, Overlap, Recurrence
from relevo.kernel.recurrence import after, every_text, parse
from relevo.kernel.recurrence.zones import zone_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANY_START: Final = datetime(2000, 1, 1, tzinfo=UTC)


def declared(
    what: str,
    *,
    every: timedelta | float | None,
    cron: str | None,
    recurrence: str | Recurrence | None,
    timezone: str | None,
    missed: Missed | None,
    overlap: Overlap | None,
) -> Recurrence | None:
    """Return the recurrence that a handler declares, None if it has no schedule.

    Raises `InvalidValue` or `InvalidRecurrence` for a rule that cannot be meant.
    """
    ways = {"every": every, "cron": cron, "recurrence": recurrence}
    given = [name for name, value in ways.items() if value is not None]
    options = {"timezone": timezone, "missed": missed, "overlap": overlap}
    if len(given) > 1:
        raise InvalidValue(f"{what} has {' and '.join(given)}; give one of them")
    if not given:
        stray = [name for name, value in options.items() if value is not None]
        if stray:
            raise InvalidValue(
                f"{what} has {stray[0]} without a schedule; give every=, cron= or recurrence="
            )
        return None
    try:
        found = _recurrence(what, given[0], ways[given[0]])
        _check_options(what, found, options)
        set_options = {name: value for name, value in options.items() if value is not None}
        found = msgspec.structs.replace(found, **set_options)
        _check_rule(what, found)
    except InvalidRecurrence as error:
        raise InvalidRecurrence(f"{what}: {error.message}", kind=error.kind) from None
    return found


def _recurrence(what: str, name: str, given: Any) -> Recurrence:
    if isinstance(given, Recurrence) and name == "recurrence":
        return given
    if name == "every":
        if isinstance(given, int | float) and not isinstance(given, bool):
            given = timedelta(seconds=given)
        if not isinstance(given, timedelta):
            raise InvalidValue(
                f"{what} has every={given!r}; give seconds or a timedelta, or a rule as"
                ' recurrence="FREQ=DAILY" or cron="0 3 * * *"'
            )
        return Recurrence(pattern=every_text(given))
    if not isinstance(given, str) or not given.strip():
        raise InvalidValue(f'{what} has {name}={given!r}; give text, such as cron="0 3 * * *"')
    if name == "cron" and "=" in given:
        raise InvalidValue(f"{what} has cron={given!r}, an iCalendar rule; write recurrence=")
    return Recurrence(pattern=given)


def _check_options(what: str, found: Recurrence, options: Mapping[str, Any]) -> None:
    for name, words in (("missed", get_args(Missed)), ("overlap", get_args(Overlap))):
        if options[name] is not None and options[name] not in words:
            raise InvalidValue(
                f"{what} has {name}={options[name]!r}; give one of {', '.join(words)}"
            )
    if options["timezone"] is not None and found.pattern.startswith("@every"):
        raise InvalidValue(
            f"{what} has timezone and a fixed interval, which no clock changes; leave timezone out,"
            " or use cron="
        )
    if None not in (options["timezone"], found.timezone):
        raise InvalidValue(f"{what} has two time zones; give timezone once")


def _check_rule(what: str, found: Recurrence) -> None:
    """Refuse a rule that never fits; one with an end may be over, which is no mistake."""
    zone = None if found.timezone is None else zone_of(found.timezone)
    pattern = parse(found.pattern)
    if pattern.until is None and after(pattern, found.start or _ANY_START, zone=zone) is None:
        raise InvalidRecurrence(f"the rule {found.pattern!r} has no instant")


def anchor_of(recurrence: Recurrence, now: datetime) -> datetime:
    """Return where a series begins that is declared now.

    Without a start that is now, and for a fixed interval the midnight before: every 15 minutes is
    at the full quarters of an hour, whenever it was declared.
    """
    if recurrence.start is not None:
        return recurrence.start
    if parse(recurrence.pattern).step is not None:
        return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return now.replace(microsecond=0)
