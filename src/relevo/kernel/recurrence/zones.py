"""Time zones by name, and by the numbers that Dataverse has for them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from relevo.errors import InvalidValue

UTC_CODE: Final = 92
CODES: Final[dict[str, int]] = {
    "UTC": UTC_CODE, "Etc/UTC": UTC_CODE, "GMT": UTC_CODE, "Etc/GMT": UTC_CODE,
    "Etc/GMT+12": 0, "Pacific/Pago_Pago": 1, "Pacific/Honolulu": 2, "America/Anchorage": 3,
    "America/Los_Angeles": 4, "America/Tijuana": 5, "America/Denver": 10, "America/Mazatlan": 13,
    "America/Phoenix": 15, "America/Chicago": 20, "America/Regina": 25, "America/Mexico_City": 30,
    "America/Guatemala": 33, "America/New_York": 35, "America/Indiana/Indianapolis": 40,
    "America/Bogota": 45, "America/Lima": 45, "America/Halifax": 50, "America/La_Paz": 55,
    "America/Santiago": 56, "America/St_Johns": 60, "America/Sao_Paulo": 65,
    "America/Argentina/Buenos_Aires": 69, "America/Cayenne": 70, "America/Nuuk": 73,
    "Atlantic/South_Georgia": 75, "Atlantic/Azores": 80, "Atlantic/Cape_Verde": 83,
    "Europe/London": 85, "Europe/Dublin": 85, "Europe/Lisbon": 85, "Atlantic/Canary": 85,
    "Atlantic/Reykjavik": 90, "Africa/Abidjan": 90, "Europe/Budapest": 95, "Europe/Prague": 95,
    "Europe/Belgrade": 95, "Europe/Bratislava": 95, "Europe/Ljubljana": 95, "Europe/Warsaw": 100,
    "Europe/Sarajevo": 100, "Europe/Skopje": 100, "Europe/Zagreb": 100, "Europe/Madrid": 105,
    "Europe/Paris": 105, "Europe/Brussels": 105, "Europe/Copenhagen": 105, "Africa/Ceuta": 105,
    "Europe/Berlin": 110, "Europe/Amsterdam": 110, "Europe/Rome": 110, "Europe/Stockholm": 110,
    "Europe/Vienna": 110, "Europe/Zurich": 110, "Europe/Oslo": 110, "Africa/Lagos": 113,
    "Europe/Bucharest": 115, "Africa/Cairo": 120, "Europe/Kyiv": 125, "Europe/Kiev": 125,
    "Europe/Helsinki": 125, "Europe/Riga": 125, "Europe/Sofia": 125, "Europe/Tallinn": 125,
    "Europe/Vilnius": 125, "Europe/Athens": 130, "Asia/Jerusalem": 135,
    "Africa/Johannesburg": 140, "Europe/Moscow": 145, "Asia/Riyadh": 150, "Africa/Nairobi": 155,
    "Asia/Baghdad": 158, "Asia/Tehran": 160, "Asia/Dubai": 165, "Asia/Baku": 169,
    "Asia/Yerevan": 170, "Asia/Kabul": 175, "Asia/Yekaterinburg": 180, "Asia/Tashkent": 185,
    "Asia/Karachi": 184, "Asia/Kolkata": 190, "Asia/Calcutta": 190, "Asia/Kathmandu": 193,
    "Asia/Almaty": 195, "Asia/Dhaka": 196, "Asia/Colombo": 200, "Asia/Novosibirsk": 201,
    "Asia/Yangon": 203, "Asia/Bangkok": 205, "Asia/Krasnoyarsk": 207, "Asia/Shanghai": 210,
    "Asia/Hong_Kong": 210, "Asia/Singapore": 215, "Asia/Taipei": 220, "Australia/Perth": 225,
    "Asia/Irkutsk": 227, "Asia/Seoul": 230, "Asia/Tokyo": 235, "Asia/Yakutsk": 240,
    "Australia/Darwin": 245, "Australia/Adelaide": 250, "Australia/Sydney": 255,
    "Australia/Melbourne": 255, "Australia/Brisbane": 260, "Australia/Hobart": 265,
    "Asia/Vladivostok": 270, "Pacific/Port_Moresby": 275, "Pacific/Guadalcanal": 280,
    "Pacific/Fiji": 285, "Pacific/Auckland": 290, "Pacific/Tongatapu": 300,
}  # fmt: skip
"""The number of Dataverse's time zone, by IANA names of places in it."""
_SEASONS: Final = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))


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


@cache
def code_of(name: str) -> int | None:
    """Return the number that Dataverse has for a time zone; None if it has none like it.

    A place that is not listed has the number of one whose clocks go as its own do, in winter and in
    summer.

    >>> code_of("Europe/Madrid"), code_of("Europe/Monaco"), code_of("Asia/Pyongyang")
    (105, 95, 230)
    """
    if name in CODES:
        return CODES[name]
    offsets = _offsets(name)
    return next((code for other, code in CODES.items() if _offsets(other) == offsets), None)


def _offsets(name: str) -> list[object]:
    return [season.astimezone(zone_of(name)).utcoffset() for season in _SEASONS]
