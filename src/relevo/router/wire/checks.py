"""What values of the router's vocabulary must be, beyond their types. Pure.

Each raises with a pointer at the fault; `at` says where the value stands.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import force_setattr

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel.decoding import SHOWN_MAX, escape, json_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_FIRST: Final = datetime.min.replace(microsecond=1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(microsecond=999_998, tzinfo=UTC)
"""The driver takes the instants before and after these for infinity, which nothing reckons with."""


def check_id(text: str, at: str) -> None:
    """Refuse an id that is empty, longer than 256 characters, or has control characters."""
    if not 1 <= len(text) <= limits.ROUTER_ID_LENGTH_MAX:
        raise InvalidValue(
            f"an id has 1 to {limits.ROUTER_ID_LENGTH_MAX} characters, not {len(text)}", pointer=at
        )
    if not text.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in text):
        raise InvalidValue("an id has no control characters", pointer=at)


def check_labels(maps: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse labels and tags beyond the bounds, which hold for all of a resource together."""
    for at, labels in maps.items():
        if len(labels) > limits.ROUTER_LABELS_MAX:
            raise InvalidValue(
                f"there are {len(labels)} entries; {limits.ROUTER_LABELS_MAX} are the most",
                pointer=at,
            )
        for key, value in labels.items():
            check_key(key, f"{at}/{escape(key[:SHOWN_MAX])}")
            check_label_value(value, f"{at}/{escape(key)}")
    size = sum(len(msgspec.json.encode(labels)) for labels in maps.values())
    if size > limits.ROUTER_LABELS_BYTES_MAX:
        raise TooLarge(
            f"labels and tags have {size} bytes together; {limits.ROUTER_LABELS_BYTES_MAX} are the"
            " most"
        )


def check_key(key: str, at: str) -> None:
    """Refuse the key of a label that is empty or too long."""
    if not 1 <= len(key) <= limits.ROUTER_LABEL_KEY_LENGTH_MAX:
        raise InvalidValue(
            f"the key of a label has 1 to {limits.ROUTER_LABEL_KEY_LENGTH_MAX} characters, not"
            f" {len(key)}",
            pointer=at,
        )


def check_label_value(value: Any, at: str) -> None:
    """Refuse what is neither text nor a number nor a boolean, and text that is too long."""
    match value:
        case str() if len(value) > limits.ROUTER_LABEL_TEXT_LENGTH_MAX:
            raise InvalidValue(
                f"the text of a label has at most {limits.ROUTER_LABEL_TEXT_LENGTH_MAX}"
                f" characters, not {len(value)}",
                pointer=at,
            )
        case float() if not math.isfinite(value):
            raise InvalidValue("a label is no number beyond all others", pointer=at)
        case str() | bool() | int() | float():
            pass
        case _:
            raise InvalidValue(
                f"a label is a string, a number or a boolean, not {json_name(value)}", pointer=at
            )


def check_uri(text: str | None, at: str) -> None:
    """Refuse what is no address of HTTP; whether it may be called is seen when it is."""
    if text is None:
        return
    try:
        parts = urlsplit(text)
        fine = parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        fine = False
    if not fine or any(character <= " " for character in text):
        raise InvalidValue("this is not an http or https URL", pointer=at)
    if "@" in parts.netloc:
        raise InvalidValue(
            "the URL holds a user or password; use the fields for credentials", pointer=at
        )


def check_unique(names: Sequence[str], at: str, field_name: str) -> None:
    """Refuse a name that is there twice."""
    seen: set[str] = set()
    for number, one in enumerate(names):
        if one in seen:
            raise InvalidValue(
                f"{field_name} {one!r} is there twice; each may be there once",
                pointer=f"{at}/{number}/{field_name}",
            )
        seen.add(one)


def to_utc(part: msgspec.Struct, name: str) -> None:
    """Take a time without a zone for UTC, and every other to UTC."""
    value: datetime | None = getattr(part, name)
    if value is None or value.tzinfo is UTC:
        return
    if value.tzinfo is None:
        force_setattr(part, name, value.replace(tzinfo=UTC))
        return
    try:
        force_setattr(part, name, value.astimezone(UTC))
    except OverflowError:
        raise ValueError("this time is out of range") from None


def to_instant(part: msgspec.Struct, name: str) -> None:
    """The same for a time that goes into a column of its own: neither the first nor the last."""
    to_utc(part, name)
    value: datetime | None = getattr(part, name)
    if value is not None:
        force_setattr(part, name, bounded(value))


def bounded(instant: datetime) -> datetime:
    """Return an instant that a column can hold: a microsecond off at the very ends of time."""
    return min(max(instant, _FIRST), _LAST)
