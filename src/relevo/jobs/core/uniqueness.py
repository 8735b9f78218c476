"""Unique jobs: which jobs count as the same, for how long, and in which states of the first one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from relevo import limits
from relevo.errors import InvalidValue

UniqueState = Literal["waiting", "running", "succeeded", "failed", "canceled"]
STATES: Final[tuple[UniqueState, ...]] = get_args(UniqueState)
KEY_LENGTH_MAX: Final = 256
FIELDS_MAX: Final = 20
_LIVE: Final = ("waiting", "running")


class Unique(Struct, frozen=True, kw_only=True):
    """A second submit with the same key gets the first job instead of a new one.

    `key` is text, a tuple of names of arguments, or a function that returns text from the arguments
    it names; by default all arguments are the key. Handlers never share keys. `window` is how many
    seconds after the first submit the key counts; without one it counts until the first job has
    ended. `states` are those of the first job in which it counts: by default `waiting` and
    `running`, and `succeeded` with a window. Other states need a window.
    """

    key: str | tuple[str, ...] | Callable[..., str] | None = None
    window: float | timedelta | None = None
    states: tuple[UniqueState, ...] | None = None


Uniqueness = bool | str | tuple[str, ...] | Callable[..., str] | Unique
"""What `unique=` takes: True, a key, names of arguments, a function, or everything."""


def unique_of(what: str, given: Uniqueness | None) -> Unique | None:
    """Return what `unique=` means, or refuse it.

    >>> unique_of("a job", "nightly").key
    'nightly'
    """
    if given is None or given is False:
        return None
    unique = given if isinstance(given, Unique) else Unique(key=None if given is True else given)
    _check_key(what, unique.key)
    window = seconds_of(unique)
    if window is not None and not 0 < window <= limits.JOB_UNIQUE_SECONDS_MAX:
        raise InvalidValue(
            f"{what} has unique with window={unique.window!r}; give a time above 0 of at most"
            f" {limits.JOB_UNIQUE_SECONDS_MAX:.0f} s",
            pointer="unique",
        )
    states = unique.states
    if states is not None and (not states or set(states) - set(STATES)):
        raise InvalidValue(
            f"{what} has unique with states={states!r}; give some of {', '.join(STATES)}",
            pointer="unique",
        )
    if window is None and set(states or ()) - set(_LIVE):
        raise InvalidValue(
            f"{what} has unique with states={states!r} and no window; ended jobs count only within"
            " a window, such as window=3600",
            pointer="unique",
        )
    return unique


def stored(unique: Unique, key: str | None) -> dict[str, Any]:
    """Return it as the SQL function takes it; `key` is what the function of its key returned."""
    key = key if callable(unique.key) else unique.key if isinstance(unique.key, str) else None
    fields = {} if not isinstance(unique.key, tuple) else {"fields": list(unique.key)}
    keyed = {} if key is None else {"key": key}
    window = {} if unique.window is None else {"window": seconds_of(unique)}
    states = {} if unique.states is None else {"states": list(unique.states)}
    return {**keyed, **fields, **window, **states}


def checked_key(what: str, key: Any) -> str:
    """Return what a function of a key returned, or refuse it."""
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH_MAX:
        raise InvalidValue(
            f"the unique function of {what} returned {key!r:.100}; a key is text of 1 to"
            f" {KEY_LENGTH_MAX} characters",
            pointer="unique",
        )
    return key


def check_fields(unique: Unique, data: Mapping[str, Any], what: str) -> None:
    """Refuse data without the arguments that are its key."""
    if isinstance(unique.key, tuple):
        missing = [name for name in unique.key if name not in data]
        if missing:
            raise InvalidValue(
                f"{what} is unique by {missing[0]!r}, which its data does not have; give it",
                pointer=f"data/{missing[0]}",
            )


def seconds_of(unique: Unique) -> float | None:
    """Return the window in seconds."""
    window = unique.window
    if isinstance(window, timedelta):
        return window.total_seconds()
    return None if window is None else float(window)


def _check_key(what: str, key: Any) -> None:
    if key is None or callable(key):
        return
    parts = (key,) if isinstance(key, str) else key
    if (
        not isinstance(parts, tuple)
        or not 1 <= len(parts) <= FIELDS_MAX
        or not all(isinstance(one, str) and 1 <= len(one) <= KEY_LENGTH_MAX for one in parts)
    ):
        raise InvalidValue(
            f"{what} has unique={key!r:.100}; give True, a key of 1 to {KEY_LENGTH_MAX} characters,"
            " a tuple of names of arguments, a function, or relevo.Unique(…)",
            pointer="unique",
        )
