"""Time zones by name."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from relevo.errors import InvalidValue


def zone_of(name: str, pointer: str | None = None) -> ZoneInfo:
    """Return a time zone by its IANA name; `pointer` says where it was given.

    >>> zone_of("Europe/Madrid").key
    'Europe/Madrid'
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidValue(
            f"there is no time zone {name[:80]!r}; give an IANA name such as Europe/Madrid",
            pointer=pointer,
        ) from None
