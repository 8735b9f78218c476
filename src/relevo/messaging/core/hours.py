"""Hours of consumers: daily windows in a time zone, outside of which nothing is claimed.

Hours.of("22:00-06:00 Europe/Madrid").are_open(now)
Hours.of("12:00-14:00, 22:00-24:00 UTC")
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from relevo.errors import InvalidValue
from relevo.kernel.recurrence.zones import zone_of
from relevo.limits import MESSAGE_HOURS_WINDOWS_MAX

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = 24 * 60
_LOOK_MINUTES: Final = 3 * _DAY
"""A window that falls into the hour that a clock skips does not open that day; the next it does."""


class Hours(Struct, frozen=True):
    """Daily windows in minutes of the day, the end excluded; one that ends before it begins goes
    over midnight."""

    windows: tuple[tuple[int, int], ...]
    zone: str

    @classmethod
    def of(cls, text: str) -> Hours:
        """Read windows, separated by commas, and a zone; raise `InvalidValue` otherwise."""
        times, _, zone = str(text).strip().rpartition(" ")
        parts = [part.strip() for part in times.split(",")]
        windows = [_window(part, text) for part in parts[: MESSAGE_HOURS_WINDOWS_MAX + 1]]
        if len(windows) > MESSAGE_HOURS_WINDOWS_MAX:
            raise InvalidValue(
                f"hours has {len(parts)} windows; at most {MESSAGE_HOURS_WINDOWS_MAX} are allowed",
                pointer="hours",
            )
        return cls(tuple(windows), zone_of(zone, "hours").key)

    def are_open(self, now: datetime) -> bool:
        """Return whether messages may be claimed now."""
        return self._open_in(now, zone_of(self.zone))

    def next_change(self, now: datetime) -> datetime | None:
        """Return when they open or close next, to the minute; None if that is never."""
        zone = zone_of(self.zone)
        opened = self._open_in(now, zone)
        at = now.astimezone(UTC).replace(second=0, microsecond=0)
        for _ in range(_LOOK_MINUTES):
            at += _MINUTE
            if self._open_in(at, zone) != opened:
                return at
        return None

    def _open_in(self, now: datetime, zone: ZoneInfo) -> bool:
        local = now.astimezone(zone)
        minute = local.hour * 60 + local.minute
        return any(
            start <= minute < end if start < end else minute >= start or minute < end
            for start, end in self.windows
        )


def _window(part: str, text: object) -> tuple[int, int]:
    found = _WINDOW.fullmatch(part)
    numbers = [int(number) for number in found.groups()] if found else [0, 0, 0, 0]
    start, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if start == end or end > _DAY:
        raise InvalidValue(
            f"hours is {text!r}; give windows and a time zone, such as '22:00-06:00 Europe/Madrid'"
            " or '08:00-12:00, 14:00-18:00 UTC'",
            pointer="hours",
        )
    return start, end
