"""Values of a submit as they are stored, or refused by name before anything is written."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import msgspec

from relevo.errors import InvalidValue, TooLarge
from relevo.jobs.model import DATA_BYTES_MAX
from relevo.kernel.decoding import has_nul

_ENCODER = msgspec.json.Encoder()


def text(what: str, value: Any, most: int) -> None:
    """Refuse what is neither None nor text of so many characters that can be stored."""
    if value is None:
        return
    good = isinstance(value, str) and len(value) <= most and "\0" not in value
    if not good or value != value.encode("utf-8", "ignore").decode():
        raise InvalidValue(
            f"the {what} of a job is text of at most {most} characters, not {_shown(value)}",
            pointer=what,
        )


def _shown(value: Any) -> str:
    return repr(value[:100] if isinstance(value, str) else value)


def uuid(what: str, value: Any) -> UUID:
    """Return a key that is given as such or as its text, or refuse it by name."""
    if isinstance(value, UUID):
        return value
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        return UUID(value)
    raise InvalidValue(f"a job's {what} is a UUID, not {_shown(value)}", pointer=what)


def json(what: str, value: Any) -> str:
    """Return a value as JSON."""
    try:
        found = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidValue(f"{what} of a job must be JSON: {error}", pointer=what) from error
    if len(found) > DATA_BYTES_MAX:
        raise TooLarge(
            f"{what} of a job has {len(found)} bytes; at most {DATA_BYTES_MAX} are taken"
        )
    if has_nul(found):
        raise InvalidValue(
            f"{what} of a job has a null character, which cannot be stored", pointer=what
        )
    return found.decode()
