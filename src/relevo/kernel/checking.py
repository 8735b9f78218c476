"""Arguments of callers, as they are stored or refused by name before anything is written."""

from __future__ import annotations

import contextlib
import difflib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from relevo import limits
from relevo.errors import InvalidValue, TooLarge
from relevo.kernel.decoding import has_nul

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_ENCODER = msgspec.json.Encoder()


def text(what: str, value: Any, most: int, *, of: str) -> None:
    """Refuse a value that is neither None nor storable text of at most `most` characters."""
    if value is None:
        return
    good = isinstance(value, str) and len(value) <= most and "\0" not in value
    if not good or not (value.isascii() or value == value.encode("utf-8", "ignore").decode()):
        raise InvalidValue(
            f"the {what} of {of} is text of at most {most} characters, not {_shown(value)}",
            pointer=what,
        )


def _shown(value: Any) -> str:
    return repr(value[:100] if isinstance(value, str) else value)


def uuid(what: str, value: Any, *, of: str) -> UUID:
    """Return a key that is given as such or as its text, or refuse it by name."""
    if isinstance(value, UUID):
        return value
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        return UUID(value)
    raise InvalidValue(f"the {what} of {of} is a UUID, not {_shown(value)}", pointer=what)


def json(what: str, value: Any, most: int, *, of: str) -> str:
    """Return a value as JSON of at most so many bytes."""
    try:
        encoded = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidValue(f"{what} of {of} must be JSON: {error}", pointer=what) from error
    if len(encoded) > most:
        raise TooLarge(f"{what} of {of} has {len(encoded)} bytes; at most {most} are taken")
    if b"\\u0000" in encoded and has_nul(encoded):
        raise InvalidValue(
            f"{what} of {of} has a null character, which cannot be stored", pointer=what
        )
    return encoded.decode()


def aware(value: datetime, what: str) -> datetime:
    """Return an instant that says its offset, or refuse it by name."""
    if not isinstance(value, datetime):
        raise InvalidValue(f"{what} is a datetime, not {value!r}", pointer=what)
    if value.tzinfo is None:
        raise InvalidValue(
            f"{what} is {value.isoformat()}, which has no offset; say which zone it is in",
            pointer=what,
        )
    if value.year > limits.YEAR_MAX:
        raise InvalidValue(
            f"{what} is {value.isoformat()}; the last year is {limits.YEAR_MAX}", pointer=what
        )
    return value


def options(what: str, given: Iterable[str], allowed: Collection[str]) -> None:
    """Refuse an option that does not exist, and name the one that may be meant."""
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            hint = f"do you mean {near[0]}?" if near else f"there are {', '.join(sorted(allowed))}"
            raise InvalidValue(f"{what} takes no option {name!r}; {hint}", pointer=name)


def seconds(value: float | timedelta) -> float:
    """Return a length of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
